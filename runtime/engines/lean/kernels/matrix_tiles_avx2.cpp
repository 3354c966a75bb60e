// Tiles of float products for AVX2 with FMA. Nothing of the C++ library: it would be compiled for AVX2, too,
// and might be the copy that is linked for all.
#include "lean/kernels/matrix.h"

namespace slipway::lean {
namespace {

// The check of a bundle's instructions goes by the name: toolchains/inspect/isa.toml.
template <std::size_t Rows>
void tile_on_avx2(const float* a, std::size_t stride, const float* panel, std::size_t depth, float* c,
                  std::size_t c_stride, std::size_t columns) {
  matrix_tile<float, 32, Rows, 2>(a, stride, panel, depth, c, c_stride, columns);
}

constexpr MatrixTiles<float>::Function kFunctions[] = {tile_on_avx2<1>, tile_on_avx2<2>, tile_on_avx2<3>,
                                                       tile_on_avx2<4>, tile_on_avx2<5>, tile_on_avx2<6>};

}  // namespace

const MatrixTiles<float> kMatrixTilesForAvx2 = {6, 16, kFunctions};

}  // namespace slipway::lean
