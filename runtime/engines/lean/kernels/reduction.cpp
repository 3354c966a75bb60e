#include "lean/kernels/reduction.h"

namespace slipway::lean {

Status Reduction::plan(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep,
                       TensorView* out) {
  std::array<bool, kMostDims> reduced{};
  for (const std::int64_t item : dims) {
    std::size_t dim = 0;
    SLIPWAY_RETURN_IF_ERROR(in.rank == 0 ? Status() : wrap_dim(item, in.rank, &dim));
    reduced[dim] = true;
  }
  if (dims.empty()) {
    reduced.fill(true);
  }
  const auto strides = in.strides();
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (reduced[i] && !steps_.empty() && steps_.back() == strides[i] * in.sizes[i]) {
      // With the one before: longer runs.
      sizes_.back() *= in.sizes[i];
      steps_.back() = strides[i];
    } else if (reduced[i] && in.sizes[i] != 1) {
      sizes_.push_back(in.sizes[i]);
      steps_.push_back(strides[i]);
    }
    if (!reduced[i] || keep) {
      kept_[shape.size()] = reduced[i] ? 0 : strides[i];
      shape.push_back(reduced[i] ? 1 : in.sizes[i]);
    }
  }
  return resize(out, shape);
}

}  // namespace slipway::lean
