// Shapes inside a delegate's graph, in numbers that cannot wrap around.
#pragma once

#include <xnnpack.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "xnnpack_runtime_generated.h"

namespace slipway::lean {

// A type of values in the exporter's numbers and in XNNPACK's, which differ.
struct XnnType {
  xnn::XNNDatatype exported;
  xnn_datatype type;
  unsigned bits;           // of one element
  const char* name;        // null for a type that no value of a graph may have
  const char* in_kernels;  // as XNNPACK writes it in the names of its kernels
};
// nullptr for a type that this XNNPACK lacks.
const XnnType* find_type(xnn_datatype type);
const XnnType* find_type(xnn::XNNDatatype exported);
const char* name_of(xnn_datatype type);

// Sizes in the order in which they lie in memory.
struct Dims {
  std::size_t rank = 0;
  std::array<std::size_t, XNN_MAX_TENSOR_DIMS> size{};

  std::size_t operator[](std::size_t i) const { return size[i]; }
  std::size_t& operator[](std::size_t i) { return size[i]; }
  std::size_t last() const { return size[rank - 1]; }  // of rank 1 and more
};

bool operator==(const Dims& one, const Dims& other);
inline bool operator!=(const Dims& one, const Dims& other) {
  return !(one == other);
}

// Of the same rank, and no size is larger.
bool at_most(const Dims& one, const Dims& bound);

// An image's shape with its channels behind the rest, where XNNPACK has them; PyTorch has them before. Other
// ranks stay.
Dims channels_last(const Dims& dims);

// "2x3"; "scalar" when there is no dimension.
std::string shape_text(const Dims& dims);

// No tensor has more bytes than this, and no single size is larger.
inline constexpr std::size_t kMostBytes = SIZE_MAX / 8;

// The product of the sizes from `first` up to `end`; false when it is more than kMostBytes.
bool count_between(const Dims& dims, std::size_t first, std::size_t end, std::size_t* count);
inline bool count_all(const Dims& dims, std::size_t* count) {
  return count_between(dims, 0, dims.rank, count);
}

// Bits of one element in memory; 0 for a type that no value of a graph may have.
std::size_t bits_of(xnn_datatype datatype);
// Bytes of a tensor: rows of 4-bit numbers begin at a byte. False when there are more than kMostBytes.
bool count_bytes(const Dims& dims, xnn_datatype datatype, std::size_t* bytes);

}  // namespace slipway::lean
