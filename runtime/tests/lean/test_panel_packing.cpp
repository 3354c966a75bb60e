// XNNPACK's packing of weights by many threads against the same by one, byte for byte.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/config.h>

#include "check.h"
#include "lean/xnnpack/panel_packing.h"

using namespace slipway::lean;

namespace {

struct PackedTypeHere {
  const xnn_gemm_config* config;
  std::size_t element;
  std::size_t bias;
};

std::vector<PackedTypeHere> types_here() {
  std::vector<PackedTypeHere> found;
  for (const PackedTypeHere& type :
       {PackedTypeHere{xnn_init_f32_gemm_config(), 4, 4}, PackedTypeHere{xnn_init_f16_gemm_config(), 2, 2},
        PackedTypeHere{xnn_init_qs8_qc8w_gemm_config(), 1, 4},
        PackedTypeHere{xnn_init_qd8_f32_qc8w_gemm_config(), 1, 4},
        PackedTypeHere{xnn_init_qd8_f16_qc8w_gemm_config(), 1, 4}}) {
    if (type.config != nullptr && type.config->pack_gemm_goi != nullptr) {
      found.push_back(type);
    }
  }
  return found;
}

// Of 8 bits: the type's parameters begin with the input's zero point.
constexpr std::int8_t kZeroPoint = 3;

std::vector<std::uint8_t> noise(std::size_t bytes) {
  std::vector<std::uint8_t> all(bytes);
  std::uint32_t seed = 1;
  for (std::uint8_t& byte : all) {
    seed = seed * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(seed >> 24 & 0x3f);  // no number in floating point is a NaN
  }
  return all;
}

// Vector kernels write whole lines.
struct alignas(64) Line {
  std::uint8_t bytes[64];
};

class Packed {
 public:
  explicit Packed(const PanelSizes& sizes)
      : size_(sizes.groups * sizes.count() * sizes.panel_bytes()), lines_(size_ / sizeof(Line) + 2) {}
  std::uint8_t* data() { return lines_.data()->bytes; }
  bool operator==(const Packed& other) const {
    return size_ == other.size_ && std::memcmp(lines_.data(), other.lines_.data(), size_) == 0;
  }

 private:
  std::size_t size_;
  std::vector<Line> lines_;
};

// As the table has it now; `window`: of a convolution.
Packed pack_all(const xnn_gemm_config& config, const PanelSizes& sizes, bool window) {
  const std::size_t columns = sizes.groups * sizes.columns;
  const std::vector<std::uint8_t> weights = noise(columns * sizes.column_bytes());
  const std::vector<std::uint8_t> bias = noise(columns * sizes.bias);
  Packed packed(sizes);
  if (window) {
    config.pack_igemm_goki(sizes.groups, sizes.columns, sizes.window, sizes.depth, sizes.panel, sizes.kr,
                           sizes.sr, weights.data(), bias.data(), nullptr, packed.data(), sizes.panel_extra,
                           &kZeroPoint);
  } else {
    config.pack_gemm_goi(sizes.groups, sizes.columns, sizes.depth, sizes.panel, sizes.kr, sizes.sr,
                         weights.data(), bias.data(), nullptr, packed.data(), sizes.panel_extra, &kZeroPoint);
  }
  return packed;
}

// Each panel by a call of its own, the last one first: none may need or change what another one wrote.
Packed pack_backwards(const xnn_gemm_config& config, const PanelSizes& sizes, bool window) {
  const std::size_t all = sizes.groups * sizes.columns;
  const std::vector<std::uint8_t> weights = noise(all * sizes.column_bytes());
  const std::vector<std::uint8_t> bias = noise(all * sizes.bias);
  Packed packed(sizes);
  for (std::size_t i = sizes.groups * sizes.count(); i-- > 0;) {
    const std::size_t group = i / sizes.count();
    const std::size_t begin = i % sizes.count() * sizes.panel;
    const std::size_t before = group * sizes.columns + begin;
    const std::size_t columns = sizes.columns - begin < sizes.panel ? sizes.columns - begin : sizes.panel;
    const std::uint8_t* from = weights.data() + before * sizes.column_bytes();
    const std::uint8_t* with = bias.data() + before * sizes.bias;
    std::uint8_t* to = packed.data() + i * sizes.panel_bytes();
    if (window) {
      config.pack_igemm_goki(1, columns, sizes.window, sizes.depth, sizes.panel, sizes.kr, sizes.sr, from,
                             with, nullptr, to, sizes.panel_extra, &kZeroPoint);
    } else {
      config.pack_gemm_goi(1, columns, sizes.depth, sizes.panel, sizes.kr, sizes.sr, from, with, nullptr, to,
                           sizes.panel_extra, &kZeroPoint);
    }
  }
  return packed;
}

}  // namespace

TEST("weights that many threads pack are those that one packs") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  const std::vector<PackedTypeHere> types = types_here();
  CHECK(!types.empty());
  for (const PackedTypeHere& type : types) {
    const xnn_gemm_config& config = *type.config;
    for (const bool window : {false, true}) {
      if (window && config.pack_igemm_goki == nullptr) {
        continue;
      }
      for (const std::size_t depth : {std::size_t{67}, std::size_t{128}}) {
        for (const std::size_t groups : {std::size_t{1}, std::size_t{3}}) {
          PanelSizes sizes;
          sizes.groups = groups;
          sizes.columns = std::size_t{21} * config.nr + 3;
          sizes.window = window ? 9 : 1;
          sizes.depth = depth;
          sizes.panel = config.nr;
          sizes.kr = std::size_t{1} << config.log2_kr;
          sizes.sr = std::size_t{1} << config.log2_sr;
          sizes.element = type.element;
          sizes.bias = type.bias;
          sizes.panel_extra = type.element == 1 ? config.nr * sizeof(float) : 0;
          const auto rows = config.pack_gemm_goi;
          const Packed expected = pack_all(config, sizes, window);
          CHECK(pack_backwards(config, sizes, window) == expected);
          {
            const PanelPacking packing(threads.get());
            CHECK(config.pack_gemm_goi != rows);
            CHECK(pack_all(config, sizes, window) == expected);
          }
          CHECK(config.pack_gemm_goi == rows);
        }
      }
    }
  }
  xnn_deinitialize();
}
