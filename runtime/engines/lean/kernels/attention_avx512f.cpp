// Attention for AVX-512.
#include "lean/kernels/attention_tile.h"

namespace slipway::lean {

const AttentionTiles kAttentionTilesForAvx512f = {16, attention::attend<64>};

}  // namespace slipway::lean
