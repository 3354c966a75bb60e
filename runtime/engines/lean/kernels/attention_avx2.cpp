// Attention for AVX2 with FMA.
#include "lean/kernels/attention_tile.h"

namespace slipway::lean {

const AttentionTiles kAttentionTilesForAvx2 = {8, attention::attend<32>};

}  // namespace slipway::lean
