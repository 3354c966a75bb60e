#include "kai_linear.h"

#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp_qsi8cxp_interface.h>
#include <kai/ukernels/matmul/pack/kai_lhs_quant_pack_qai8dxp_f32.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>

namespace slipway::lean {

using Kernel = kai_matmul_clamp_f32_qai8dxp_qsi8cxp_ukernel;

struct Choice {
  const char* name;
  const char* feature;
  Kernel kernel;
};

struct KaiKernels {
  std::uint32_t seed;  // tells its packed weights from others
  bool xnn_hardware_config::* needs;
  Choice many;
  Choice one;
};

namespace {

#define CHOICE(variant, feature)                                                                      \
  {                                                                                                   \
    "kai_run_matmul_clamp_f32_" #variant, feature, {                                                  \
      kai_get_m_step_matmul_clamp_f32_##variant, kai_get_n_step_matmul_clamp_f32_##variant,           \
          kai_get_mr_matmul_clamp_f32_##variant, kai_get_nr_matmul_clamp_f32_##variant,               \
          kai_get_kr_matmul_clamp_f32_##variant, kai_get_sr_matmul_clamp_f32_##variant,               \
          kai_get_lhs_packed_offset_matmul_clamp_f32_##variant,                                       \
          kai_get_rhs_packed_offset_matmul_clamp_f32_##variant,                                       \
          kai_get_dst_offset_matmul_clamp_f32_##variant, kai_get_dst_size_matmul_clamp_f32_##variant, \
          kai_run_matmul_clamp_f32_##variant                                                          \
    }                                                                                                 \
  }

// The best first. Both kernels of one line read weights packed in the same way.
const KaiKernels kWays[] = {
    {0x4B410001, &xnn_hardware_config::use_arm_sme2,
     CHOICE(qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa, "neonsme2"),
     CHOICE(qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot, "neonsme2")},
    {0x4B410002, &xnn_hardware_config::use_arm_neon_i8mm,
     CHOICE(qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm, "neoni8mm"),
     CHOICE(qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod, "neondot")},
    {0x4B410003, &xnn_hardware_config::use_arm_neon_dot,
     CHOICE(qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod, "neondot"),
     CHOICE(qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod, "neondot")},
};
#undef CHOICE

// What the kernels expect of activations that are quantized with a zero point of their own.
constexpr kai_rhs_pack_qsi8cx_params kParams = {1, 1.0F};

struct Work {
  const Kernel& kernel;
  const LinearLayer& layer;
  const float* input;
  std::uint8_t* rows;
  const std::uint8_t* weights;
  float* output;
};

void pack_rows(void* context, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const std::size_t stride = work.layer.depth * sizeof(float);
  const std::size_t place = kai_get_lhs_packed_offset_lhs_quant_pack_qai8dxp_f32(
      row, work.layer.depth, kernel.get_mr(), kernel.get_kr(), kernel.get_sr());
  kai_run_lhs_quant_pack_qai8dxp_f32(count, work.layer.depth, kernel.get_mr(), kernel.get_kr(),
                                     kernel.get_sr(), 0, work.input + row * work.layer.depth, stride,
                                     work.rows + place);
}

void multiply(void* context, std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const std::size_t depth = work.layer.depth;
  const std::size_t stride = work.layer.outputs * sizeof(float);
  auto* output = reinterpret_cast<std::uint8_t*>(work.output) + kernel.get_dst_offset(row, column, stride);
  kernel.run_matmul(rows, columns, depth, work.rows + kernel.get_lhs_packed_offset(row, depth),
                    work.weights + kernel.get_rhs_packed_offset(column, depth),
                    reinterpret_cast<float*>(output), stride, sizeof(float), work.layer.min, work.layer.max);
}

std::size_t divided_up(std::size_t number, std::size_t by) {
  return number / by + (number % by != 0 ? 1 : 0);
}

}  // namespace

const KaiKernels* kai_kernels() {
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  for (const KaiKernels& way : kWays) {
    if (hardware != nullptr && hardware->*way.needs) {
      return &way;
    }
  }
  return nullptr;
}

Result<std::unique_ptr<KaiLinear>> KaiLinear::make(const KaiKernels& kernels, const LinearLayer& layer,
                                                   PackedWeights& weights) {
  std::unique_ptr<KaiLinear> made(new KaiLinear(kernels, layer));
  const Kernel& kernel = kernels.many.kernel;
  xnn_weights_cache_t cache = weights.provider();
  const xnn_weights_cache_look_up_key key = {kernels.seed, layer.weights, layer.bias};
  std::size_t place = cache->look_up(cache->context, &key);
  if (place == SIZE_MAX) {
    const std::size_t size = kai_get_rhs_packed_size_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
        layer.outputs, layer.depth, kernel.get_nr(), kernel.get_kr(), kernel.get_sr());
    void* memory = cache->reserve_space(cache->context, size);
    if (memory == nullptr) {
      return Status(Code::kMemory,
                    "There is no memory for packed weights: " + std::to_string(size) + " bytes.",
                    "use a smaller program, or a device with more memory");
    }
    const std::vector<float> none(layer.bias == nullptr ? layer.outputs : 0);
    kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
        1, layer.outputs, layer.depth, kernel.get_nr(), kernel.get_kr(), kernel.get_sr(), layer.weights,
        layer.bias == nullptr ? none.data() : layer.bias, layer.scales.data(), memory, 0, &kParams);
    place = cache->look_up_or_insert(cache->context, &key, memory, size);
  }
  made->packed_ = static_cast<const std::uint8_t*>(cache->offset_to_addr(cache->context, place));
  return made;
}

void KaiLinear::run(const float* input, std::size_t rows, float* output, pthreadpool_t threads) {
  if (rows == 0) {
    return;
  }
  const Kernel& kernel = (rows == 1 ? kernels_.one : kernels_.many).kernel;
  rows_.resize(kai_get_lhs_packed_size_lhs_quant_pack_qai8dxp_f32(rows, layer_.depth, kernel.get_mr(),
                                                                  kernel.get_kr(), kernel.get_sr()));
  Work work{kernel, layer_, input, rows_.data(), packed_, output};
  // Denormals as XNNPACK treats them.
  constexpr std::uint32_t kFlags = PTHREADPOOL_FLAG_DISABLE_DENORMALS;
  pthreadpool_parallelize_1d_tile_1d(threads, pack_rows, &work, rows, kernel.get_mr(), kFlags);
  // Some tiles for each thread, so that a slow one holds nobody up for long.
  const std::size_t step = kernel.get_n_step();
  const std::size_t tiles_of_rows = divided_up(rows, kernel.get_m_step());
  const std::size_t tiles_wanted = divided_up(5 * pthreadpool_get_threads_count(threads), tiles_of_rows);
  const std::size_t columns = divided_up(divided_up(layer_.outputs, tiles_wanted), step) * step;
  pthreadpool_parallelize_2d_tile_2d(threads, multiply, &work, rows, layer_.outputs, kernel.get_m_step(),
                                     columns, kFlags);
}

KernelUse KaiLinear::use(std::size_t rows) const {
  const Choice& choice = rows == 1 ? kernels_.one : kernels_.many;
  return {"Fully Connected (NC, QP8, F32, QC8W) GEMM", choice.name, "KleidiAI", choice.feature};
}

}  // namespace slipway::lean
