#include "lean/xnnpack/nibble_packing.h"

#include <xnnpack/config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/pack.h>

#include <algorithm>
#include <cstring>

namespace slipway::lean {
namespace {

using PackBlocks = xnn_packw_gemm_goi_bl_ukernel_fn;

constexpr std::size_t kGroup = kNibblesTogether / 2;  // neighbours in a kernel's row of bytes: its kr
constexpr std::size_t kPanelsTogether = 2;

pthreadpool_t threads_now = nullptr;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
constexpr bool kLittle = true;
#else
constexpr bool kLittle = false;
#endif

// Eight nibbles, the least first, become the low halves of eight bytes.
inline std::uint64_t bytes_of_nibbles(std::uint32_t nibbles) {
  std::uint64_t all = nibbles;
  all = (all | all << 16) & 0x0000ffff0000ffffU;
  all = (all | all << 8) & 0x00ff00ff00ff00ffU;
  return (all | all << 4) & 0x0f0f0f0f0f0f0f0fU;
}

inline float widened(std::uint16_t bfloat16) {
  const std::uint32_t bits = std::uint32_t{bfloat16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct Job {
  NibblePanels panels;
  const std::uint8_t* weights;
  const std::uint16_t* scales;
  std::int32_t input_zero;
  std::uint8_t* packed;
};

void pack_some(void* context, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const Job*>(context);
  pack_nibbles(job.panels, job.weights, job.scales, job.input_zero, job.packed, first, first + count);
}

void pack_blocks(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel,
                 std::size_t kr, std::size_t sr, std::size_t block, const void* weights, const void* bias,
                 const void* scales, void* packed, std::size_t block_extra, std::size_t panel_extra,
                 const void* params) {
  const auto& zeros = *static_cast<const xnn_qs8_qc4w_packing_params*>(params);
  const bool fits = kLittle && groups == 1 && kr == kGroup && sr == 1 && depth % kNibblesTogether == 0 &&
                    block % kNibblesTogether == 0 && depth % block == 0 && bias == nullptr &&
                    zeros.kernel_zero_point == 8;
  if (!fits) {
    xnn_pack_qs8_qb4w_gemm_goi_w(groups, columns, depth, panel, kr, sr, block,
                                 static_cast<const std::uint8_t*>(weights), static_cast<const float*>(bias),
                                 static_cast<const xnn_bfloat16*>(scales), packed, block_extra, panel_extra,
                                 &zeros);
    return;
  }
  Job job = {{columns, depth, panel, block, block_extra, panel_extra},
             static_cast<const std::uint8_t*>(weights),
             static_cast<const std::uint16_t*>(scales),
             zeros.input_zero_point,
             static_cast<std::uint8_t*>(packed)};
  pthreadpool_parallelize_1d_tile_1d(threads_now, &pack_some, &job, job.panels.count(), kPanelsTogether, 0);
}

// Where the table has XNNPACK's function, or ours in its place.
void replace(const xnn_gemm_config* config, PackBlocks from, PackBlocks to) {
  if (config != nullptr && config->pack_gemm_goi_bl == from) {
    const_cast<xnn_gemm_config*>(config)->pack_gemm_goi_bl = to;
  }
}

void replace_all(PackBlocks from, PackBlocks to) {
  replace(xnn_init_qd8_f32_qb4w_gemm_config(), from, to);
  replace(xnn_init_qd8_f16_qb4w_gemm_config(), from, to);
}

PackBlocks theirs() {
  return reinterpret_cast<PackBlocks>(&xnn_pack_qs8_qb4w_gemm_goi_w);
}

}  // namespace

void pack_nibbles(const NibblePanels& panels, const std::uint8_t* weights, const std::uint16_t* scales,
                  std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last) {
  const std::size_t row_bytes = panels.depth / 2;
  const std::size_t blocks = panels.depth / panels.block;
  for (std::size_t at = first; at < last; ++at) {
    const std::size_t begin = at * panels.panel;
    const std::size_t some = std::min(panels.panel, panels.columns - begin);
    std::uint8_t* sums = packed + at * panels.panel_bytes();
    std::uint8_t* to = sums + panels.panel * sizeof(float);
    for (std::size_t k = 0; k < panels.depth; k += kNibblesTogether) {
      const std::uint8_t* from = weights + begin * row_bytes + k / 2;
      const std::uint16_t* scale = scales + begin * blocks + k / panels.block;
      for (std::size_t n = 0; n < some; ++n, from += row_bytes, scale += blocks) {
        std::uint32_t halves[2];
        std::memcpy(halves, from, sizeof(halves));
        const std::uint64_t low = bytes_of_nibbles(halves[0]);
        const std::uint64_t high = bytes_of_nibbles(halves[1]);
        const std::uint64_t bytes = (low | high << 4) ^ 0x8888888888888888U;
        std::memcpy(to + n * kGroup, &bytes, sizeof(bytes));
        const auto total = static_cast<std::int32_t>((low + high) * 0x0101010101010101U >> 56);
        const std::int32_t above = total - 8 * static_cast<std::int32_t>(kNibblesTogether);
        float sum;
        std::memcpy(&sum, sums + n * sizeof(float), sizeof(sum));
        sum = sum - static_cast<float>(above) * static_cast<float>(input_zero) * widened(*scale);
        std::memcpy(sums + n * sizeof(float), &sum, sizeof(sum));
      }
      to += panels.panel * kGroup;
      if ((k + kNibblesTogether) % panels.block == 0) {
        to += panels.block_extra;
      }
    }
  }
}

NibblePacking::NibblePacking(pthreadpool_t threads) {
  threads_now = threads;
  replace_all(theirs(), &pack_blocks);
}

NibblePacking::~NibblePacking() {
  replace_all(&pack_blocks, theirs());
  threads_now = nullptr;
}

}  // namespace slipway::lean
