// Layers of int8 with a scale and a zero point, and 8-bit weights with a scale a channel (pqs8_qc8w).
#include <kai/ukernels/matmul/imatmul_clamp_qai8_qai8p_qsi8cxp/kai_imatmul_clamp_qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_qai8_qai8p_qsi8cxp/kai_imatmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8_qsi8cxp/kai_matmul_clamp_qai8_qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8p_qsi8cxp/kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8p_qsi8cxp/kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x8p2vlx4_x8p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_x8p2vlx4_x8_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme.h>

#include <algorithm>
#include <cmath>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

struct Kernel : KaiKernel {
  void (*run)(std::size_t m, std::size_t n, std::size_t k, const void* lhs, const void* rhs, void* dst,
              std::size_t row_stride, std::size_t column_stride,
              const kai_matmul_requantize32_params* params);
};

#define PACKED(variant, feature) \
  {SLIPWAY_PACKED(matmul_clamp_qai8_, variant, feature), kai_run_matmul_clamp_qai8_##variant}
#define PLAIN(variant, feature) \
  {SLIPWAY_PLAIN(matmul_clamp_qai8_, variant, feature), kai_run_matmul_clamp_qai8_##variant}

// Of windows.
struct WindowKernel8 {
  const char* name;
  const char* feature;
  std::size_t (*n_step)();
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  void (*run)(std::size_t m, std::size_t n, std::size_t chunks, std::size_t length, const void* lhs,
              const void* rhs, void* dst, std::size_t stride, const kai_matmul_requantize32_params* params);
};

#define WINDOWS(variant, feature)                                                                \
  {"kai_run_imatmul_clamp_qai8_" #variant, feature, kai_get_n_step_imatmul_clamp_qai8_##variant, \
   kai_get_dst_offset_imatmul_clamp_qai8_##variant, kai_run_imatmul_clamp_qai8_##variant}

constexpr Gathering kGathering = SLIPWAY_GATHERING(lhs_imatmul_pack_x8p2vlx4_x8p_sme);

struct Way {
  bool xnn_hardware_config::* needs;
  Kernel many;
  Kernel one;
  WindowKernel8 windows;
};

// The best first; all read weights packed in the same way. There are no kernels for processors without SME.
const Way kWays[] = {
    {&xnn_hardware_config::use_arm_sme2, PACKED(qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa, "neonsme2"),
     PLAIN(qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot, "neonsme2"),
     WINDOWS(qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa, "neonsme2")},
    {&xnn_hardware_config::use_arm_sme, PACKED(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme"),
     PACKED(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme"),
     WINDOWS(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme")},
};
#undef WINDOWS
#undef PLAIN
#undef PACKED

constexpr std::uint32_t kSeed = 0x4B410021;  // tells their packed weights from others
constexpr std::uint32_t kWindowSeed = 0x4B410022;
constexpr std::size_t kKr = 4;

struct Work {
  const Kernel& kernel;
  const MatrixLayer& layer;
  const std::int8_t* input;
  std::uint8_t* rows;
  const std::uint8_t* weights;
  std::int8_t* output;
  kai_matmul_requantize32_params params;
};

void pack_rows(void* context, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const std::size_t depth = work.layer.depth;
  const std::size_t mr = work.kernel.mr();
  const std::size_t packed_offset =
      kai_get_lhs_packed_offset_lhs_pack_x8p2vlx4_x8_sme(row, depth, mr, kKr, 1);
  kai_run_lhs_pack_x8p2vlx4_x8_sme(count, depth, mr, kKr, 1, 0, work.input + row * depth, depth,
                                   work.rows + packed_offset);
}

void multiply(void* context, std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const std::size_t depth = work.layer.depth;
  const std::size_t stride = work.layer.outputs;
  const void* input = work.input + row * depth;
  if (kernel.mr != nullptr) {
    input = work.rows + kernel.lhs_offset(row, depth);
  }
  kernel.run(rows, columns, depth, input, work.weights + kernel.rhs_offset(column, depth),
             work.output + kernel.dst_offset(row, column, stride), stride, 1, &work.params);
}

// The whole number that stands for a real one in the output, as near as it comes.
std::int32_t quantized(float value, const MatrixLayer& layer) {
  const float scaled = value / layer.output_scale + static_cast<float>(layer.output_zero);
  return static_cast<std::int32_t>(std::lrint(std::clamp(scaled, -128.0F, 127.0F)));
}

class Static8 : public KaiLayer {
 public:
  Static8(const MatrixLayer& layer, const Way& way)
      : KaiLayer(layer),
        way_(way),
        params_{quantized(layer.min, layer), quantized(layer.max, layer), layer.output_zero},
        padding_(layer.windowed ? layer.channels : 0, static_cast<std::int8_t>(layer.input_zero)) {}

  Status pack(PackedWeights& weights);
  void run(const LayerShape& shape, const void* input, const void* other, void* output,
           pthreadpool_t threads) override;
  KernelUse use(const LayerShape& shape) const override {
    const std::string node = node_name(layer_, "PQS8, QC8W");
    if (layer_.windowed) {
      return {node, way_.windows.name, "KleidiAI", way_.windows.feature};
    }
    const Kernel& kernel = shape.rows == 1 ? way_.one : way_.many;
    return {node, kernel.name, "KleidiAI", kernel.feature};
  }

 private:
  void pack_into(std::uint8_t* memory) const;
  void run_windowed(const LayerShape& shape, const void* input, void* output, pthreadpool_t threads);

  const Way& way_;
  kai_matmul_requantize32_params params_;
  std::vector<std::int8_t> padding_;  // a pixel that stands for zeros
};

void Static8::pack_into(std::uint8_t* memory) const {
  const std::size_t step = kai_get_n_step_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme();
  const auto* weights = static_cast<const std::int8_t*>(layer_.weights);
  const kai_rhs_pack_qsi8cx_params params = {layer_.input_zero, 1.0F};
  // Computed as XNNPACK does, so that results are rounded alike.
  std::vector<float> scales(layer_.outputs);
  for (std::size_t n = 0; n < layer_.outputs; ++n) {
    scales[n] = layer_.input_scale * layer_.scales[n] / layer_.output_scale;
  }
  const std::vector<std::int32_t> none(layer_.bias == nullptr ? layer_.outputs : 0);
  const auto* biases = layer_.bias == nullptr ? none.data() : static_cast<const std::int32_t*>(layer_.bias);
  std::vector<std::int8_t> block(layer_.depth * step);
  for (std::size_t first = 0; first < layer_.outputs; first += step) {
    const std::size_t count = std::min(step, layer_.outputs - first);
    for (std::size_t n = 0; n < count; ++n) {
      for (std::size_t k = 0; k < layer_.depth; ++k) {
        block[k * count + n] = weights[(first + n) * layer_.along_outputs + k * layer_.along_depth];
      }
    }
    if (layer_.windowed) {
      const std::size_t chunks = chunks_of(layer_);
      kai_run_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
          count, chunks, layer_.channels, count, block.data(), biases + first, scales.data() + first,
          memory + kai_get_rhs_packed_offset_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
                       first, chunks, layer_.channels),
          &params);
      continue;
    }
    kai_run_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
        1, count, layer_.depth, step, kKr, 1, count, block.data(), biases + first, scales.data() + first,
        memory + kai_get_rhs_packed_offset_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(first, layer_.depth),
        0, &params);
  }
}

Status Static8::pack(PackedWeights& weights) {
  const auto write = [this](std::uint8_t* memory) { pack_into(memory); };
  if (layer_.windowed) {
    return pack_once(kWindowSeed, way_.windows.n_step(),
                     kai_get_rhs_packed_size_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
                         layer_.outputs, chunks_of(layer_), layer_.channels),
                     weights, write);
  }
  const std::size_t size =
      kai_get_rhs_packed_size_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(layer_.outputs, layer_.depth);
  return pack_once(kSeed, way_.many.n_step(), size, weights, write);
}

void Static8::run_windowed(const LayerShape& shape, const void* input, void* output, pthreadpool_t threads) {
  const WindowKernel8& kernel = way_.windows;
  const std::size_t chunks = chunks_of(layer_);
  const std::size_t stride = layer_.outputs;
  const auto multiply_tile = [&](std::size_t row, const std::uint8_t* packed, std::size_t rows,
                                 std::size_t column, std::size_t columns) {
    const std::size_t weights =
        kai_get_rhs_packed_offset_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(column, chunks,
                                                                                        layer_.channels);
    kernel.run(rows, columns, chunks, layer_.channels, packed, packed_ + weights,
               static_cast<std::uint8_t*>(output) + kernel.dst_offset(row, column, stride), stride, &params_);
  };
  run_windows({kGathering, layer_, shape, static_cast<const std::uint8_t*>(input), 1, padding_.data(),
               kernel.n_step(), multiply_tile},
              &rows_, threads);
}

void Static8::run(const LayerShape& shape, const void* input, const void* /*other*/, void* output,
                  pthreadpool_t threads) {
  const std::size_t rows = shape.rows;
  if (rows == 0) {
    return;
  }
  if (layer_.windowed) {
    run_windowed(shape, input, output, threads);
    return;
  }
  const Kernel& kernel = rows == 1 ? way_.one : way_.many;
  Work work{kernel,  layer_,  static_cast<const std::int8_t*>(input),
            nullptr, packed_, static_cast<std::int8_t*>(output),
            params_};
  if (kernel.mr != nullptr) {
    rows_.resize(kai_get_lhs_packed_size_lhs_pack_x8p2vlx4_x8_sme(rows, layer_.depth, kernel.mr(), kKr, 1));
    work.rows = rows_.data();
    pthreadpool_parallelize_1d_tile_1d(threads, pack_rows, &work, rows, kernel.mr(), kPoolFlags);
  }
  const std::size_t columns =
      tile_columns(layer_.outputs, kernel.n_step(), divided_up(rows, kernel.m_step()), threads);
  pthreadpool_parallelize_2d_tile_2d(threads, multiply, &work, rows, layer_.outputs, kernel.m_step(), columns,
                                     kPoolFlags);
}

}  // namespace

bool has_static8(const MatrixLayer& layer) {
  return !layer.given && best_of(kWays) != nullptr;
}

KaiMade make_static8(const MatrixLayer& layer, PackedWeights& weights) {
  return make_packed<Static8>(layer, *best_of(kWays), weights);
}

}  // namespace slipway::lean
