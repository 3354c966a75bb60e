#include "lean/data/evalue.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace slipway::lean {

std::size_t TensorView::count() const {
  std::size_t elements = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    elements *= static_cast<std::size_t>(sizes[i]);
  }
  return elements;
}

bool TensorView::contiguous() const {
  for (std::size_t i = 0; i < rank; ++i) {
    if (order[i] != i) {
      return false;
    }
  }
  return true;
}

TensorView TensorView::in_rows(std::uint8_t* memory) const {
  TensorView view = *this;
  std::iota(view.order.begin(), view.order.begin() + rank, std::uint8_t{0});
  view.data = memory;
  return view;
}

std::array<std::int64_t, kMostDims> TensorView::strides() const {
  std::array<std::int64_t, kMostDims> found{};
  std::int64_t step = 1;
  for (std::size_t i = rank; i-- > 0;) {
    found[order[i]] = step;
    step *= std::max<std::int64_t>(sizes[order[i]], 1);
  }
  return found;
}

Status resize(TensorView* view, const std::int64_t* sizes, std::size_t rank) {
  if (view->constant || (view->data == nullptr && view->count() != 0)) {
    return {
        Code::kFile,
        view->constant ? "A constant would be written to." : "A tensor without memory would be written to.",
        "export the model again"};
  }
  if (view->has_sizes(sizes, rank)) {
    return {};
  }
  if (view->pinned) {
    return {Code::kFile, "A tensor that is read would have to change its shape to be written to.",
            "export the model again"};
  }
  const Shape new_shape(sizes, sizes + rank);
  const std::string change = "from " + to_text(view->shape()) + " to " + to_text(new_shape);
  if (rank != view->rank || view->dynamism == Dynamism::kStatic) {
    return {Code::kExecution, "A tensor of fixed shape would have to change " + change + ".",
            "export the program with this dimension dynamic"};
  }
  std::size_t count = 0;
  if (!count_elements(new_shape, size_of(view->dtype), &count) ||
      count * size_of(view->dtype) > view->capacity) {
    return {Code::kExecution, "A tensor has no room to change " + change + ".",
            "export the program with larger bounds for its dynamic dimensions"};
  }
  std::copy(sizes, sizes + rank, view->sizes.begin());
  return {};
}

Tensor tensor_of(const TensorView& view) {
  Tensor tensor{view.dtype, view.shape(), {view.data, view.data + view.bytes()}};
  if (!view.contiguous()) {
    const std::vector<std::uint8_t> order(view.order.begin(), view.order.begin() + view.rank);
    tensor.bytes = to_row_major(tensor.bytes, tensor.shape, order, size_of(tensor.dtype));
  }
  return tensor;
}

}  // namespace slipway::lean
