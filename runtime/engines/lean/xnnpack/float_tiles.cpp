#include "lean/xnnpack/float_tiles.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include "selection.h"

namespace slipway::lean {

const TileSet* float_tiles() {
#if XNN_ARCH_X86_64
  if constexpr (!has_float_layers()) {
    return nullptr;
  }
  static const TileSet* const found = []() -> const TileSet* {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware == nullptr || !hardware->use_x86_f16c) {
      return nullptr;
    }
    if (hardware->use_x86_avx512f) {
      return &avx512f::kTiles;
    }
    return hardware->use_x86_avx2 && hardware->use_x86_fma3 ? &avx2::kTiles : nullptr;
  }();
  return found;
#else
  return nullptr;
#endif
}

const TileSet* half_tiles() {
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  return hardware == nullptr || hardware->use_x86_avx512fp16 ? nullptr : float_tiles();
#else
  return nullptr;
#endif
}

}  // namespace slipway::lean
