#include "lean/xnnpack/blocking.h"

#include <xnnpack/compute.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstddef>

#include "lean/xnnpack/tile_choice.h"

// XNNPACK's tasks; its header hides them from C++.
extern "C" {
void xnn_compute_gemm(const gemm_context* context, std::size_t row, std::size_t column, std::size_t rows,
                      std::size_t columns);
void xnn_compute_grouped_gemm(const gemm_context* context, std::size_t group, std::size_t row,
                              std::size_t column, std::size_t rows, std::size_t columns);
void xnn_compute_igemm(const igemm_context* context, std::size_t row, std::size_t column, std::size_t rows,
                       std::size_t columns);
void xnn_compute_grouped_igemm(const igemm_context* context, std::size_t group, std::size_t row,
                               std::size_t column, std::size_t rows, std::size_t columns);
}

namespace slipway::lean {
namespace {

// Every processor with AVX2 has a second cache of 256 KiB or more, and a first one of 32 KiB.
constexpr std::size_t kRowsBytes = std::size_t{128} * 1024;
constexpr std::size_t kPanelsBytes = std::size_t{16} * 1024;
constexpr std::size_t kTasksPerThread = 16;

std::size_t ceiling(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Panels that fit into the first cache are given to the kernel together: fewer calls.
template <typename Context>
std::size_t columns_together(const Context& context) {
  const std::size_t panel = context.cn_stride >> context.log2_csize;
  return std::max(panel, kPanelsBytes / context.w_stride / panel * panel);
}

template <typename Compute>
void in_blocks(std::size_t tile, std::size_t together, std::size_t row, std::size_t column, std::size_t rows,
               std::size_t columns, Compute compute) {
  for (std::size_t n = 0; n < columns; n += together) {
    for (std::size_t m = 0; m < rows; m += tile) {
      compute(row + m, column + n, std::min(tile, rows - m), std::min(together, columns - n));
    }
  }
}

void compute_gemm(void* context, std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
  const auto* gemm = static_cast<const gemm_context*>(context);
  in_blocks(gemm->mr, columns_together(*gemm), row, column, rows, columns,
            [&](std::size_t m, std::size_t n, std::size_t some, std::size_t wide) {
              xnn_compute_gemm(gemm, m, n, some, wide);
            });
}

void compute_grouped_gemm(void* context, std::size_t group, std::size_t row, std::size_t column,
                          std::size_t rows, std::size_t columns) {
  const auto* gemm = static_cast<const gemm_context*>(context);
  in_blocks(gemm->mr, columns_together(*gemm), row, column, rows, columns,
            [&](std::size_t m, std::size_t n, std::size_t some, std::size_t wide) {
              xnn_compute_grouped_gemm(gemm, group, m, n, some, wide);
            });
}

std::size_t tile_rows(const igemm_context& igemm) {
  return igemm.ks_scaled / (igemm.ks * sizeof(void*));
}

void compute_igemm(void* context, std::size_t row, std::size_t column, std::size_t rows,
                   std::size_t columns) {
  const auto* igemm = static_cast<const igemm_context*>(context);
  in_blocks(tile_rows(*igemm), columns_together(*igemm), row, column, rows, columns,
            [&](std::size_t m, std::size_t n, std::size_t some, std::size_t wide) {
              xnn_compute_igemm(igemm, m, n, some, wide);
            });
}

void compute_grouped_igemm(void* context, std::size_t group, std::size_t row, std::size_t column,
                           std::size_t rows, std::size_t columns) {
  const auto* igemm = static_cast<const igemm_context*>(context);
  in_blocks(tile_rows(*igemm), columns_together(*igemm), row, column, rows, columns,
            [&](std::size_t m, std::size_t n, std::size_t some, std::size_t wide) {
              xnn_compute_grouped_igemm(igemm, group, m, n, some, wide);
            });
}

struct Blocks {
  std::size_t rows;
  std::size_t columns;
};

// Rows that stay near, all columns; less of both until every thread has enough to do.
Blocks blocks_of(std::size_t others, std::size_t rows, std::size_t columns, std::size_t tile,
                 std::size_t panel, std::size_t row_bytes, std::size_t threads) {
  const std::size_t resident = std::max(kRowsBytes / std::max<std::size_t>(row_bytes, 1) / tile * tile, tile);
  Blocks found = {std::min(resident, ceiling(rows, tile)), ceiling(columns, panel)};
  const auto tasks = [&] {
    return others * (ceiling(rows, found.rows) / found.rows) *
           (ceiling(columns, found.columns) / found.columns);
  };
  while (threads > 1 && tasks() < threads * kTasksPerThread) {
    if (found.rows > 2 * tile) {
      found.rows = ceiling(found.rows / 2, tile);
    } else if (found.columns > panel) {
      found.columns = ceiling(found.columns / 2, panel);
    } else if (found.rows > tile) {
      found.rows = tile;
    } else {
      break;
    }
  }
  return found;
}

void set_tiles(compute_parameters* compute, std::size_t first, std::size_t tile, std::size_t panel,
               std::size_t row_bytes, std::size_t threads) {
  const std::size_t others = first == 0 ? 1 : compute->range[0];
  const Blocks blocks =
      blocks_of(others, compute->range[first], compute->range[first + 1], tile, panel, row_bytes, threads);
  compute->tile[0] = blocks.rows;
  compute->tile[1] = blocks.columns;
}

template <typename Task, typename Function>
bool is(Task task, Function* function) {
  return reinterpret_cast<void (*)()>(task) == reinterpret_cast<void (*)()>(function);
}

void set_blocks(xnn_operator* op, compute_parameters* compute, std::size_t threads) {
  const bool two = compute->type == xnn_parallelization_type_2d_tile_2d;
  const bool three = compute->type == xnn_parallelization_type_3d_tile_2d;
  if (op->ukernel.type == xnn_microkernel_type_igemm) {
    const igemm_context& igemm = op->context.igemm.igemm;
    const std::size_t panel = igemm.cn_stride >> igemm.log2_csize;
    // Neighbours share most of their windows: about a row's height of it is its own.
    const std::size_t row_bytes = igemm.kc * std::max<std::size_t>(op->kernel_height, 1);
    if (two && is(compute->task_2d_tile_2d, &xnn_compute_igemm)) {
      compute->task_2d_tile_2d = &compute_igemm;
      set_tiles(compute, 0, tile_rows(igemm), panel, row_bytes, threads);
    } else if (three && is(compute->task_3d_tile_2d, &xnn_compute_grouped_igemm)) {
      compute->task_3d_tile_2d = &compute_grouped_igemm;
      set_tiles(compute, 1, tile_rows(igemm), panel, row_bytes, threads);
    }
    return;
  }
  gemm_context& gemm = op->context.gemm.gemm.gemm;
  const std::size_t panel = gemm.cn_stride >> gemm.log2_csize;
  if (two && is(compute->task_2d_tile_2d, &xnn_compute_gemm)) {
    gemm.mr = compute->tile[0];
    compute->task_2d_tile_2d = &compute_gemm;
    set_tiles(compute, 0, gemm.mr, panel, gemm.k_scaled, threads);
  } else if (three && is(compute->task_3d_tile_2d, &xnn_compute_grouped_gemm)) {
    gemm.mr = compute->tile[0];
    compute->task_3d_tile_2d = &compute_grouped_gemm;
    set_tiles(compute, 1, gemm.mr, panel, gemm.k_scaled, threads);
  }
}

bool is_ours(const xnn_operator& op) {
  switch (op.ukernel.type) {
    case xnn_microkernel_type_gemm:
      return !tile_name(reinterpret_cast<void (*)()>(op.context.gemm.gemm.gemm.ukernel.function[0])).empty();
    case xnn_microkernel_type_igemm:
      return !tile_name(reinterpret_cast<void (*)()>(op.context.igemm.igemm.ukernel.function[0])).empty();
    default:
      return false;
  }
}

}  // namespace

void set_blocks(xnn_runtime_t runtime, std::size_t threads) {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    for (xnn_operator_t op : runtime->opdata[i].operator_objects) {
      if (op == nullptr || op->state == xnn_run_state_skip || !is_ours(*op)) {
        continue;
      }
      for (compute_parameters& compute : op->compute) {
        set_blocks(op, &compute, threads);
      }
    }
  }
}

}  // namespace slipway::lean
