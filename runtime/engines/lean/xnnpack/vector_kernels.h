// Layers in 8 bits on processors with AMX, which XNNPACK computes with AMX alone.
//
// A call of an AMX kernel configures the processor's tiles, and a tile takes its time however few of its
// columns and channels the layer has. Kernels of AVX-512's VNNI compute narrow and shallow layers faster,
// with the same bits.
#pragma once

#include <cstddef>
#include <optional>

#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {

// Rows of a layer's result.
std::size_t rows_of(const xnn_value& value);
// Quantized to 8 bits with one scale or one for each channel.
bool is_bytes(const xnn_value& value);

// What a layer in 8 bits multiplies.
struct ByteProduct {
  std::size_t rows = 0;
  std::size_t columns = 0;  // of a group
  std::size_t pixels = 1;   // of a window
  std::size_t channels = 0;
  std::size_t groups = 1;
};

// Nothing, without rows, for nodes of other types and for those whose weights are no constant.
ByteProduct byte_product(const xnn_node& node, const xnn_value* values);

// Roughly, in processor cycles.
double tile_cycles(const ByteProduct& product);
double vector_cycles(const ByteProduct& product);

// The node's time with VNNI's kernels, in parts of that with AMX's. Nothing where XNNPACK has only one set of
// kernels for it.
std::optional<double> time_by_vectors(const xnn_node& node, const xnn_value* values);

// XNNPACK's table for products in 8 bits with VNNI's kernels, if they are wanted.
Changed<xnn_gemm_config> vector_kernels(bool wanted);

}  // namespace slipway::lean
