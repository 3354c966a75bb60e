// Copies between parts of tensors, which steps describe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// The part of `view` that holds `length` elements of dimension `dim` from `start` on. Parts of other memory
// orders keep their order: steps are the whole tensor's, so the result may be read and written, not resized.
struct Part {
  Operand operand;
  Shape shape;
};

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length);

// Writes `in` into the part of `out` that `target` describes: in runs, or one by one and converted where the
// types differ.
void copy_into(const Part& target, const Operand& in);

// Moves the operand's first element ahead by so many elements.
void advance(Operand* operand, std::int64_t elements);

// Gives `out` this shape and copies the operand, which has steps for each of its dimensions.
Status copy_as(TensorView& out, const Shape& shape, const Operand& operand);

}  // namespace slipway::lean
