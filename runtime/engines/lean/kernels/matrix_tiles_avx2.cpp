// Tiles of float products for AVX2 with FMA. Nothing of the C++ library: it would be compiled for AVX2, too,
// and might be the copy that is linked for all.
#include "lean/kernels/matrix.h"

namespace slipway::lean {
namespace {

constexpr MatrixTiles<float>::Function kFunctions[] = {
    matrix_tile<float, 32, 1, 2>, matrix_tile<float, 32, 2, 2>, matrix_tile<float, 32, 3, 2>,
    matrix_tile<float, 32, 4, 2>, matrix_tile<float, 32, 5, 2>, matrix_tile<float, 32, 6, 2>};

}  // namespace

const MatrixTiles<float> kMatrixTilesForAvx2 = {6, 16, kFunctions};

}  // namespace slipway::lean
