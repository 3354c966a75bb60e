// Our packing of 8-bit weights against XNNPACK's own, byte for byte.
#include <xnnpack/pack.h>

#include "check.h"
#include "lean/xnnpack/byte_packing.h"

using namespace slipway::lean;

namespace {

std::vector<std::int8_t> signed_noise(std::size_t count) {
  std::vector<std::int8_t> all(count);
  std::uint32_t seed = 7;
  for (std::int8_t& one : all) {
    seed = seed * 1664525U + 1013904223U;
    one = static_cast<std::int8_t>(seed >> 24);
  }
  return all;
}

// Weights of one value: the largest sums.
std::vector<std::int8_t> same_weights(std::size_t count, std::int8_t value) {
  return std::vector<std::int8_t>(count, value);
}

// By XNNPACK's plain loops, which add 128 to the zero point for kernels that read bytes without a sign.
void pack_theirs(const PanelSizes& sizes, bool above, const std::int8_t* weights, const std::int32_t* bias,
                 std::int8_t zero, std::uint8_t* packed) {
  const xnn_qs8_packing_params params = {zero};
  if (sizes.window > 1) {
    const auto pack = above ? &xnn_pack_qs8_to_qu8_conv_goki_w : &xnn_pack_qs8_conv_goki_w;
    pack(sizes.groups, sizes.columns, sizes.window, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights,
         bias, nullptr, packed, sizes.panel_extra, &params);
  } else {
    const auto pack = above ? &xnn_pack_qs8_to_qu8_gemm_goi_w : &xnn_pack_qs8_gemm_goi_w;
    pack(sizes.groups, sizes.columns, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights, bias, nullptr,
         packed, sizes.panel_extra, &params);
  }
}

void check_bytes(const PanelSizes& sizes, const std::vector<std::int8_t>& weights, bool with_bias, bool above,
                 std::int8_t zero) {
  std::vector<std::int32_t> bias(sizes.columns);
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<std::int32_t>(i * 2654435761U);
  }
  const std::size_t bytes = sizes.count() * sizes.panel_bytes();
  std::vector<std::uint8_t> expected(bytes + 1);
  std::vector<std::uint8_t> found(bytes + 1);
  const std::int32_t* biases = with_bias ? bias.data() : nullptr;
  pack_theirs(sizes, above, weights.data(), biases, zero, expected.data());
  for (std::size_t i = sizes.count(); i != 0; --i) {  // backwards, as threads may
    pack_bytes(sizes, weights.data(), biases, zero + (above ? 128 : 0), found.data(), i - 1, i);
  }
  CHECK(found == expected);
}

}  // namespace

TEST("8-bit weights are packed as XNNPACK packs them, in any parts") {
  std::size_t tried = 0;
  for (const std::size_t kr : {std::size_t{4}, std::size_t{8}}) {
    for (const std::size_t panel : {std::size_t{8}, std::size_t{16}, std::size_t{64}}) {
      for (const std::size_t columns : {std::size_t{1}, panel - 1, panel, 3 * panel + 2}) {
        for (const std::size_t window : {std::size_t{1}, std::size_t{9}}) {
          for (const std::size_t depth : {1U, 3U, 4U, 7U, 8U, 13U, 255U, 256U, 257U, 517U}) {
            PanelSizes sizes;
            sizes.columns = columns;
            sizes.window = window;
            sizes.depth = depth;
            sizes.panel = panel;
            sizes.kr = kr;
            sizes.element = 1;
            sizes.bias = sizeof(std::int32_t);
            sizes.panel_extra = panel * sizeof(float);
            CHECK(packs_bytes(sizes));
            const std::vector<std::int8_t> weights = signed_noise(columns * sizes.column_bytes());
            const auto zero = static_cast<std::int8_t>(tried % 256 - 128);
            check_bytes(sizes, weights, tried % 2 == 0, tried % 3 == 0, zero);
            ++tried;
          }
        }
      }
    }
  }
  CHECK(tried == 480);
}

TEST("the sums of the largest and of the least 8-bit weights do not overflow") {
  for (const int value : {-128, 127}) {
    PanelSizes sizes;
    sizes.columns = 5;
    sizes.depth = 4096;
    sizes.panel = 8;
    sizes.kr = 8;
    sizes.element = 1;
    sizes.bias = sizeof(std::int32_t);
    check_bytes(sizes, same_weights(sizes.columns * sizes.depth, static_cast<std::int8_t>(value)), true,
                false, -128);
  }
}

TEST("other orders and types than that of 8 bits are left to XNNPACK") {
  PanelSizes sizes;
  sizes.panel = 8;
  sizes.kr = 8;
  sizes.element = 1;
  sizes.bias = sizeof(std::int32_t);
  CHECK(packs_bytes(sizes));
  PanelSizes turned = sizes;
  turned.sr = 4;
  CHECK(!packs_bytes(turned));
  PanelSizes single = sizes;
  single.kr = 1;
  CHECK(!packs_bytes(single));
  PanelSizes wide = sizes;
  wide.element = 4;
  CHECK(!packs_bytes(wide));
}
