// Our packing of 4-bit weights against XNNPACK's own, byte for byte.

#include "check.h"
#include "lean/xnnpack/int4_packing.h"
#include "lean/xnnpack/int4_tile.h"

using namespace slipway::lean;

// XNNPACK's internal function and its parameters; scales are bfloat16.
struct xnn_qs8_qc4w_packing_params {
  std::int8_t input_zero_point;
  std::uint8_t kernel_zero_point;
};
extern "C" void xnn_pack_qs8_qb4w_gemm_goi_w(std::size_t groups, std::size_t columns, std::size_t depth,
                                             std::size_t panel, std::size_t kr, std::size_t sr,
                                             std::size_t block, const std::uint8_t* weights,
                                             const float* bias, const void* scales, void* packed,
                                             std::size_t block_extra, std::size_t panel_extra,
                                             const xnn_qs8_qc4w_packing_params* params);

TEST("4-bit weights are packed as XNNPACK packs them, in any parts") {
  std::uint32_t seed = 1;
  const auto random = [&seed] { return (seed = seed * 1664525U + 1013904223U) >> 16; };
  for (const std::size_t panel : {std::size_t{4}, std::size_t{8}, std::size_t{16}, std::size_t{32}}) {
    for (const std::size_t columns : {std::size_t{1}, panel - 1, panel, 3 * panel + 2}) {
      for (const std::size_t block : {std::size_t{32}, std::size_t{64}}) {
        const std::size_t depth = 3 * block;
        const Int4Panels panels = {
            columns, depth, panel, block, panel * sizeof(std::uint16_t), panel * sizeof(float)};
        std::vector<std::uint8_t> weights(columns * depth / 2);
        for (std::uint8_t& two : weights) {
          two = static_cast<std::uint8_t>(random());
        }
        std::vector<std::uint16_t> scales(columns * depth / block);
        for (std::uint16_t& scale : scales) {
          scale = static_cast<std::uint16_t>(0x3c00 + random() % 0x400);  // from 0.008 to 2
        }
        const std::size_t size = panels.count() * panels.panel_bytes();
        std::vector<std::uint8_t> expected(size + 1);
        std::vector<std::uint8_t> found(size + 1);
        const xnn_qs8_qc4w_packing_params zeros = {1, 8};
        xnn_pack_qs8_qb4w_gemm_goi_w(1, columns, depth, panel, 8, 1, block, weights.data(), nullptr,
                                     scales.data(), expected.data(), panels.block_extra, panels.panel_extra,
                                     &zeros);
        for (std::size_t i = panels.count(); i != 0; --i) {  // backwards, as threads may
          pack_int4(panels, weights.data(), scales.data(), 1, found.data(), i - 1, i);
        }
        CHECK(found == expected);
      }
    }
  }
}
