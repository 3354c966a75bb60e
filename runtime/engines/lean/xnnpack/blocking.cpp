#include "lean/xnnpack/blocking.h"

#include <xnnpack/common.h>
#include <xnnpack/compute.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>

#include "lean/xnnpack/own_kernels.h"

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
void xnn_compute_elementwise_binary_1d(const elementwise_binary_context* context, std::size_t row);
void xnn_compute_elementwise_binary_1d_tile(const elementwise_binary_context* context, std::size_t offset,
                                            std::size_t size);
void xnn_compute_lut_contiguous(const lut_contiguous_context* context, std::size_t offset, std::size_t size);
void xnn_compute_univector_contiguous(const univector_contiguous_context* context, std::size_t offset,
                                      std::size_t size);
void xnn_compute_univector_strided(const univector_strided_context* context, std::size_t row,
                                   std::size_t rows);
}

namespace slipway::lean {
namespace {

// Every processor with AVX2 has a second cache of 256 KiB or more, and a first one of 32 KiB.
constexpr std::size_t kRowsBytes = std::size_t{128} * 1024;
constexpr std::size_t kPanelsBytes = std::size_t{16} * 1024;
constexpr std::size_t kWidePanels = 8;
constexpr std::size_t kSharingPanels = 4;  // at least, where rows are prepared for each call
constexpr std::size_t kTilesPerThread = 16;
// Fewer weights stay in the second cache, whatever the order.
constexpr std::size_t kManyWeights = std::size_t{512} * 1024;
// To begin and to end a tile of one panel, whatever its depth (vector_kernels.cpp has it measured).
constexpr std::size_t kEdgeCycles = 50;
constexpr std::size_t kBytesPerCycle = 32;  // from the second cache
constexpr std::size_t kLeastTask = 8000;    // 2 us: threads ask each other for the next one
constexpr std::size_t kSquare = 64;         // elements in each direction that are transposed in a task
constexpr std::size_t kSquaresPerThread = 4;
constexpr std::size_t kPiece = std::size_t{16} * 1024;  // bytes that one core computes sooner than two

// Roughly what a core multiplies in a cycle, by an element's bytes: fewer make a layer worth sharing sooner.
std::size_t products_per_cycle(std::size_t element) {
  const xnn_hardware_config& cpu = *xnn_init_hardware_config();
  const auto by_size = [element](std::size_t bytes, std::size_t halves, std::size_t floats) {
    return element == 1 ? bytes : element == 2 ? halves : floats;
  };
#if XNN_ARCH_X86 || XNN_ARCH_X86_64
  const std::size_t floats = cpu.use_x86_avx512f ? 32 : cpu.use_x86_fma3 ? 16 : 4;
  const std::size_t bytes = cpu.use_x86_avx512vnni  ? 128
                            : cpu.use_x86_avxvnni   ? 64
                            : cpu.use_x86_avx512skx ? 48
                            : cpu.use_x86_avx2      ? 24
                                                    : 8;
  return by_size(bytes, cpu.use_x86_avx512fp16 ? 64 : floats, floats);
#elif XNN_ARCH_ARM64
  const std::size_t bytes = cpu.use_arm_neon_i8mm ? 64 : cpu.use_arm_neon_dot ? 32 : 8;
  return by_size(bytes, cpu.use_arm_neon_fp16_arith ? 16 : 8, 8);
#elif XNN_ARCH_ARM
  const std::size_t bytes = cpu.use_arm_neon_dot ? 16 : cpu.use_arm_neon ? 4 : 1;
  return by_size(bytes, cpu.use_arm_neon_fp16_arith ? 8 : 4, cpu.use_arm_neon ? 4 : 1);
#else
  static_cast<void>(cpu);
  return by_size(8, 4, 4);
#endif
}

std::size_t ceiling(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// How a task goes through its tiles: some panels for all of its rows, or all panels for a tile's rows, as
// XNNPACK does. kWide is kPanels for kernels that prepare the rows in each call: where even one panel does
// not stay in the first cache, more of them share that work.
enum class TileOrder { kPanels, kRows, kWide };

template <TileOrder kOrder, typename Context>
std::size_t together(const Context& context, std::size_t columns) {
  if (kOrder == TileOrder::kRows) {
    return columns;
  }
  const std::size_t panel = context.cn_stride >> context.log2_csize;
  if (kOrder == TileOrder::kWide && panel * context.w_stride > kPanelsBytes) {
    return kWidePanels * panel;
  }
  // Panels that fit into the first cache are given to the kernel together: fewer calls.
  return std::max(panel, kPanelsBytes / context.w_stride / panel * panel);
}

// The rows that a product's kernel computes at once.
std::size_t tile_rows(const gemm_context& gemm) {
  return gemm.mr;
}
std::size_t tile_rows(const igemm_context& igemm) {
  return igemm.ks_scaled / (igemm.ks * sizeof(void*));
}

// XNNPACK's task; `Group`: of products in groups, whose tasks have a number before the others.
template <TileOrder kOrder, typename Context, auto kTask, typename... Group>
void compute_blocks(void* context, Group... group, std::size_t row, std::size_t column, std::size_t rows,
                    std::size_t columns) {
  const auto* product = static_cast<const Context*>(context);
  const std::size_t tile = tile_rows(*product);
  // Fewer calls, and a kernel of one row computes several panels side by side.
  const std::size_t wide = rows <= tile ? columns : together<kOrder>(*product, columns);
  for (std::size_t n = 0; n < columns; n += wide) {
    for (std::size_t m = 0; m < rows; m += tile) {
      kTask(product, group..., row + m, column + n, std::min(tile, rows - m), std::min(wide, columns - n));
    }
  }
}

struct Blocking {
  std::size_t rows;
  std::size_t columns;
};

// What a layer multiplies, and the bytes that each row and each column of weights adds to a task's reading.
struct Work {
  std::size_t others;  // groups
  std::size_t rows;
  std::size_t columns;
  std::size_t depth;
  std::size_t tile;
  std::size_t panel;
  std::size_t narrowest;  // columns of a task, at least
  std::size_t row_bytes;
  std::size_t column_bytes;
  std::size_t products;  // in a cycle

  std::size_t row_blocks(const Blocking& blocks) const { return ceiling(rows, blocks.rows) / blocks.rows; }
  std::size_t column_blocks(const Blocking& blocks) const {
    return ceiling(columns, blocks.columns) / blocks.columns;
  }
  std::size_t tasks(const Blocking& blocks) const {
    return others * row_blocks(blocks) * column_blocks(blocks);
  }
  // What half the rows in a task costs: all weights are read once more for every block of rows; or half the
  // columns: all rows.
  std::size_t added_by_rows(const Blocking& blocks) const {
    return row_blocks(blocks) * columns * column_bytes;
  }
  std::size_t added_by_columns(const Blocking& blocks) const {
    return column_blocks(blocks) * rows * row_bytes;
  }
  // Of one thread, for so many rows and columns of a group.
  std::size_t cycles(std::size_t some_rows, std::size_t some_columns) const {
    const std::size_t tiles = ceiling(some_rows, tile) / tile * (ceiling(some_columns, panel) / panel);
    return tiles * (kEdgeCycles + tile * panel * depth / products);
  }
  // Roughly, of one thread: multiplications, or what is read for them.
  std::size_t cycles() const {
    const std::size_t read = columns * column_bytes + rows * row_bytes;
    return others * std::max(cycles(rows, columns), read / kBytesPerCycle);
  }
  // Tasks that keep all threads busy, of a length that is worth asking for the next one.
  std::size_t wanted(std::size_t threads) const {
    return std::min(threads * kTilesPerThread, cycles() / kLeastTask);
  }
};

// Rows that stay near, all columns; less of both until every thread has enough to do.
Blocking blocks_of(const Work& work, std::size_t threads) {
  const std::size_t resident =
      std::max(kRowsBytes / std::max<std::size_t>(work.row_bytes, 1) / work.tile * work.tile, work.tile);
  const std::size_t wanted = threads == 1 ? 1 : work.wanted(threads);
  if (threads > 1 && wanted <= 1) {
    return {ceiling(work.rows, work.tile), ceiling(work.columns, work.panel)};
  }
  Blocking found = {std::min(resident, ceiling(work.rows, work.tile)), ceiling(work.columns, work.panel)};
  while (wanted > 1 && work.tasks(found) < wanted) {
    const bool rows = found.rows > work.tile;
    const bool columns = found.columns > work.narrowest;
    if (!rows && !columns) {
      break;
    }
    if (rows && (!columns || work.added_by_rows(found) <= work.added_by_columns(found))) {
      found.rows = ceiling(found.rows / 2, work.tile);
    } else {
      found.columns = std::max(ceiling(found.columns / 2, work.panel), work.narrowest);
    }
  }
  return found;
}

// Whether XNNPACK's order, all columns for some rows, would read many weights from memory again and again.
bool rereads(const Work& work) {
  return work.rows > work.tile && work.columns * work.column_bytes > kManyWeights;
}

// Whether XNNPACK's tasks are so short that threads spend their time on asking each other for the next one.
bool has_short_tasks(const compute_parameters& compute, const Work& work) {
  const std::size_t rows = std::min(compute.tile[0], work.rows);
  const std::size_t columns = std::min(compute.tile[1], work.columns);
  return (rows < work.rows || columns < work.columns) && work.cycles(rows, columns) < kLeastTask;
}

// As many rows in a task as make it long enough; a layer that is short as a whole stays with one thread,
// unless it has groups.
void lengthen_tasks(compute_parameters* compute, const Work& work, std::size_t threads) {
  const std::size_t wanted =
      std::min(threads * kTilesPerThread, work.others * work.cycles(work.rows, work.columns) / kLeastTask);
  if (wanted <= 1) {
    compute->tile[1] = work.columns;
  }
  const std::size_t others = work.others * (ceiling(work.columns, compute->tile[1]) / compute->tile[1]);
  const std::size_t parts = std::max<std::size_t>(wanted / others, 1);
  compute->tile[0] = ceiling((work.rows + parts - 1) / parts, work.tile);
}

template <typename Task, typename Function>
bool is(Task task, Function* function) {
  return reinterpret_cast<void (*)()>(task) == reinterpret_cast<void (*)()>(function);
}

// Neighbours share most of their windows: how many pixels of a window are its own. In an image of one column,
// as a sequence is, the next window is the one below.
std::size_t own_pixels(const xnn_operator& op) {
  const std::size_t height = std::max<std::size_t>(op.kernel_height, 1);
  return op.output_width == 1 ? std::min<std::size_t>(std::max<std::size_t>(op.stride_height, 1), height)
                              : height;
}

// Whose kernels a layer has. Ours for bytes prepare their rows anew for each call.
enum class Kernels { kXnnpack, kOurs, kOursForBytes };

Kernels kernels_of(const xnn_operator& op) {
  const std::string name = tile_name(kernel_of(op));
  return name.empty()                               ? Kernels::kXnnpack
         : name.find("_qc8w_") == std::string::npos ? Kernels::kOurs
                                                    : Kernels::kOursForBytes;
}

// Ours in place of XNNPACK's task; false where it is another one.
template <TileOrder kOrder, typename Context, auto kTask, auto kGroupedTask>
bool take_tasks(compute_parameters* compute) {
  if (compute->type == xnn_parallelization_type_2d_tile_2d && is(compute->task_2d_tile_2d, kTask)) {
    compute->task_2d_tile_2d = &compute_blocks<kOrder, Context, kTask>;
    return true;
  }
  if (compute->type == xnn_parallelization_type_3d_tile_2d && is(compute->task_3d_tile_2d, kGroupedTask)) {
    compute->task_3d_tile_2d = &compute_blocks<kOrder, Context, kGroupedTask, std::size_t>;
    return true;
  }
  return false;
}

template <TileOrder kOrder>
bool take_tasks(bool gathers, compute_parameters* compute) {
  return gathers ? take_tasks<kOrder, igemm_context, &xnn_compute_igemm, &xnn_compute_grouped_igemm>(compute)
                 : take_tasks<kOrder, gemm_context, &xnn_compute_gemm, &xnn_compute_grouped_gemm>(compute);
}

// Whether the tasks are ours now. `gathers`: the product is one over windows that are gathered.
bool take_product(Kernels kernels, bool gathers, const Work& work, compute_parameters* compute,
                  std::size_t threads) {
  if (kernels == Kernels::kOurs || rereads(work)) {
    if (!(kernels == Kernels::kOursForBytes ? take_tasks<TileOrder::kWide>(gathers, compute)
                                            : take_tasks<TileOrder::kPanels>(gathers, compute))) {
      return false;
    }
    const Blocking blocks = blocks_of(work, threads);
    compute->tile[0] = blocks.rows;
    compute->tile[1] = blocks.columns;
    return true;
  }
  // Few tiles of many rows are divided among threads by columns, too.
  const std::size_t wanted = work.wanted(threads);
  const std::size_t tiles = work.others * (ceiling(work.rows, work.tile) / work.tile);
  if (threads > 1 && kernels == Kernels::kOursForBytes && tiles < wanted) {
    const std::size_t parts = (wanted + tiles - 1) / tiles;
    compute->tile[1] = std::max(ceiling(ceiling(work.columns, parts) / parts, work.panel), work.narrowest);
    return false;
  }
  if (threads == 1 || !has_short_tasks(*compute, work) || !take_tasks<TileOrder::kRows>(gathers, compute)) {
    return false;
  }
  lengthen_tasks(compute, work, threads);
  return true;
}

// What gemm_context and igemm_context have in common.
template <typename Context>
void read_panels(const Context& context, Work* work) {
  work->panel = context.cn_stride >> context.log2_csize;
  work->column_bytes = context.w_stride;
  work->products = products_per_cycle(std::size_t{1} << context.log2_csize);
}

void set_blocks(xnn_operator* op, compute_parameters* compute, std::size_t threads) {
  if (compute->type != xnn_parallelization_type_2d_tile_2d &&
      compute->type != xnn_parallelization_type_3d_tile_2d) {
    return;
  }
  const std::size_t first = compute->type == xnn_parallelization_type_3d_tile_2d ? 1 : 0;
  Work work = {};
  work.others = first == 0 ? 1 : compute->range[0];
  work.rows = compute->range[first];
  work.columns = compute->range[first + 1];
  const bool gathers = op->ukernel.type == xnn_microkernel_type_igemm;
  gemm_context& gemm = op->context.gemm.gemm.gemm;
  if (gathers) {
    const igemm_context& igemm = op->context.igemm.igemm;
    read_panels(igemm, &work);
    // Kernels take some channels of a pixel at once, whether it has them or not.
    const std::size_t together = std::size_t{op->ukernel.igemm.kr} << igemm.log2_csize;
    work.depth = ceiling(igemm.kc, together) * igemm.ks >> igemm.log2_csize;
    work.tile = tile_rows(igemm);
    work.row_bytes = igemm.kc * own_pixels(*op);
  } else {
    read_panels(gemm, &work);
    work.depth = gemm.k_scaled >> gemm.log2_csize;
    work.tile = compute->tile[0];
    work.row_bytes = gemm.k_scaled;
  }
  const Kernels kernels = kernels_of(*op);
  work.narrowest = (kernels == Kernels::kOursForBytes ? kSharingPanels : 1) * work.panel;
  if (take_product(kernels, gathers, work, compute, threads) && !gathers) {
    gemm.mr = work.tile;
  }
}

void compute_binary_rows(void* context, std::size_t row, std::size_t rows) {
  for (std::size_t i = row; i < row + rows; ++i) {
    xnn_compute_elementwise_binary_1d(static_cast<const elementwise_binary_context*>(context), i);
  }
}

// XNNPACK divides what is computed element by element among all threads, or into pieces of 1 or 4 KiB or of
// one row: a core has computed one before another has asked for the next.
void set_pieces(xnn_operator* op, compute_parameters* compute) {
  std::size_t unit = 0;  // bytes of what is counted
  if (compute->type == xnn_parallelization_type_1d &&
      is(compute->task_1d, &xnn_compute_elementwise_binary_1d)) {
    unit = op->context.elementwise_binary.elements;
    compute->type = xnn_parallelization_type_1d_tile_1d;
    compute->task_1d_tile_1d = &compute_binary_rows;
    compute->tile[0] = 1;
  } else if (compute->type == xnn_parallelization_type_1d_tile_1d) {
    const auto task = compute->task_1d_tile_1d;
    if (is(task, &xnn_compute_lut_contiguous) || is(task, &xnn_compute_univector_contiguous) ||
        is(task, &xnn_compute_elementwise_binary_1d_tile)) {
      unit = 1;
    } else if (is(task, &xnn_compute_univector_strided)) {
      unit = op->context.univector_strided.n;
    } else if (is(task, &compute_binary_rows)) {
      unit = op->context.elementwise_binary.elements;
    }
  }
  if (unit != 0) {
    compute->tile[0] = std::min(std::max(compute->tile[0], kPiece / unit), compute->range[0]);
  }
}

// 0 for what is no task over squares.
std::size_t dims_of_squares(const compute_parameters& compute) {
  switch (compute.type) {
    case xnn_parallelization_type_2d_tile_2d:
      return 2;
    case xnn_parallelization_type_3d_tile_2d:
      return 3;
    case xnn_parallelization_type_4d_tile_2d:
      return 4;
    case xnn_parallelization_type_5d_tile_2d:
      return 5;
    case xnn_parallelization_type_6d_tile_2d:
      return 6;
    default:
      return 0;
  }
}

// XNNPACK transposes 32 by 32 elements in a task. Of an image's three colours that is so little that calls
// take as long as the work.
void set_transposition(xnn_operator* op, compute_parameters* compute, std::size_t threads) {
  const std::size_t dims = dims_of_squares(*compute);
  transpose_context& context = op->context.transpose;
  const xnn_transpose_config& theirs = *xnn_init_transpose_config();
  const xnn_transposec_ukernel_fn kernels[] = {theirs.x8.const_size_ukernel, theirs.x16.const_size_ukernel,
                                               theirs.x32.const_size_ukernel};
  const auto* found = std::find(std::begin(kernels), std::end(kernels), context.const_size_ukernel);
  if (dims == 0 || found == std::end(kernels)) {
    return;
  }
  const auto log2_size = static_cast<std::size_t>(found - kernels);
  std::size_t all = 1;
  for (std::size_t i = 0; i < dims; ++i) {
    all *= compute->range[i];
  }
  const std::size_t share = threads == 1 ? all : all / (threads * kSquaresPerThread);
  const std::size_t elements = std::max(kSquare * kSquare / 4, std::min(share, kSquare * kSquare));
  std::size_t& width = compute->tile[0];
  std::size_t& height = compute->tile[1];
  height = std::min(kSquare, compute->range[dims - 1]);
  width = std::min(ceiling(elements / height, kSquare / 4), compute->range[dims - 2]);
  height = std::min(ceiling(elements / width, kSquare / 4), compute->range[dims - 1]);
  if (const TileSet* ours = float_tiles()) {
    const bool colours = compute->range[dims - 1] == 3 && context.output_stride[dims - 2] == std::size_t{3}
                                                                                                 << log2_size;
    const Transpose kernel = colours          ? ours->interleave[log2_size]
                             : log2_size == 2 ? ours->transpose
                                              : nullptr;
    if (kernel != nullptr) {
      context.const_size_ukernel = reinterpret_cast<xnn_transposec_ukernel_fn>(kernel);
    }
  }
}

// Products; on processors that only XNNPACK has kernels for, XNNPACK's order is left.
bool has_blocks(const xnn_operator& op) {
  return XNN_ARCH_X86_64 != 0 &&
         (op.ukernel.type == xnn_microkernel_type_gemm || op.ukernel.type == xnn_microkernel_type_igemm);
}

}  // namespace

void set_blocks(xnn_runtime_t runtime, std::size_t threads) {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    for (xnn_operator_t op : runtime->opdata[i].operator_objects) {
      if (op == nullptr || op->state == xnn_run_state_skip) {
        continue;
      }
      if (threads > 1 && (XNN_ARCH_X86_64 != 0 || op->lookup_table != nullptr)) {
        set_pieces(op, &op->compute[0]);
      }
      if (op->type == xnn_operator_type_transpose_nd_x8 || op->type == xnn_operator_type_transpose_nd_x16 ||
          op->type == xnn_operator_type_transpose_nd_x32) {
        set_transposition(op, &op->compute[0], threads);
      }
      if (!has_blocks(*op)) {
        continue;
      }
      for (compute_parameters& compute : op->compute) {
        set_blocks(op, &compute, threads);
      }
    }
  }
}

}  // namespace slipway::lean
