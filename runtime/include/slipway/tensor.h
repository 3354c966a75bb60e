// Element types and tensors as they cross the engine interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slipway {

enum class DType : std::uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kUnknown,    // a type this program has no file form for: it can be described, not read or written
  kNone,       // no tensor: an input or output that is None. Its file is a scalar of no bytes, '|V0'
  kComplex64,  // two floats, the real part first
  kComplex128,
};

using Shape = std::vector<std::int64_t>;

// NumPy's name of the type; "bfloat16" for the one NumPy lacks, "unknown" for kUnknown, "none".
const char* name_of(DType dtype);
// Bytes an element takes; 0 for kUnknown and kNone.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::uint8_t kSizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 0, 0, 8, 16};
  const auto index = static_cast<std::size_t>(dtype);
  return index < sizeof(kSizes) ? kSizes[index] : 0;
}

// Elements of a tensor of this shape (1 for a scalar). False when a dimension is negative or when
// elements x element_size does not fit in 2^62 bytes.
bool count_elements(const Shape& shape, std::size_t element_size, std::size_t* count);

// "2x3"; "scalar" when there is no dimension.
std::string to_text(const Shape& shape);

// A tensor that owns its bytes: row-major, little-endian.
struct Tensor {
  DType dtype = DType::kUnknown;
  Shape shape;
  std::vector<std::uint8_t> bytes;
};

// A copy of so many bytes.
std::vector<std::uint8_t> bytes_at(const void* data, std::size_t size);

// A tensor without dimensions.
template <typename T>
Tensor scalar(DType dtype, T number) {
  return {dtype, {}, bytes_at(&number, sizeof(number))};
}

// The number that the bits of a 16-bit float are.
float float16_value(std::uint16_t bits);
float bfloat16_value(std::uint16_t bits);

// A tensor of ones.
Tensor ones(DType dtype, const Shape& shape, std::size_t count);

// Reorders the bytes of a tensor between row-major order and the memory order `dim_order` (outermost
// dimension first, as in channels-last's 0,2,3,1). `shape` is the logical shape in both directions.
std::vector<std::uint8_t> to_memory_order(const std::vector<std::uint8_t>& row_major, const Shape& shape,
                                          const std::vector<std::uint8_t>& dim_order,
                                          std::size_t element_size);
std::vector<std::uint8_t> to_row_major(const std::vector<std::uint8_t>& memory, const Shape& shape,
                                       const std::vector<std::uint8_t>& dim_order, std::size_t element_size);

}  // namespace slipway
