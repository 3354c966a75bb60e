// What the files that call KleidiAI have in common; one of them a kind of arithmetic.
#pragma once

#include <functional>
#include <string>

#include "kai_layer.h"

namespace slipway::lean {

bool has_dynamic8();
bool has_half();
bool has_static8();

using KaiMade = Result<std::unique_ptr<KaiLayer>>;
KaiMade make_dynamic8(const MatrixLayer& layer, PackedWeights& weights);
KaiMade make_half(const MatrixLayer& layer, PackedWeights& weights);
KaiMade make_static8(const MatrixLayer& layer, PackedWeights& weights);

// The layer's weights, `size` bytes in the form that `pack` writes, which `seed` tells from others.
Result<const std::uint8_t*> packed_once(const MatrixLayer& layer, std::uint32_t seed, std::size_t size,
                                        PackedWeights& weights,
                                        const std::function<void(std::uint8_t*)>& pack);

// Columns to give a thread at a time, a multiple of `step`: some tiles for each thread, so that a slow one
// holds nobody up for long.
std::size_t tile_columns(std::size_t outputs, std::size_t step, std::size_t tiles_of_rows,
                         pthreadpool_t threads);
std::size_t divided_up(std::size_t number, std::size_t by);

// "Convolution (NHWC, PF16) GEMM", as XNNPACK would name it.
std::string node_name(Operation operation, const char* types);

// Denormals as XNNPACK treats them.
inline constexpr std::uint32_t kPoolFlags = PTHREADPOOL_FLAG_DISABLE_DENORMALS;

}  // namespace slipway::lean
