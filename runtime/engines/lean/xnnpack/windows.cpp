#include "lean/xnnpack/windows.h"

#include <string>

namespace slipway::lean {
namespace {

constexpr std::uint64_t kMostPadding = std::uint64_t{1} << 30;

}  // namespace

bool Window::sane() const {
  return kernel != 0 && stride != 0 && dilation != 0 && before < kMostPadding && after < kMostPadding;
}

bool windows_along(std::size_t size, const Window& window, bool same, std::size_t* count) {
  if (!window.sane() || size == 0 || size > kMostPadding) {
    return false;
  }
  if (same) {
    *count = static_cast<std::size_t>((size - 1) / window.stride + 1);
    return (*count - 1) * window.stride + window.reach() >= size && window.before == 0 && window.after == 0;
  }
  const std::uint64_t padded = window.before + size + window.after;
  if (window.reach() > padded) {
    return false;
  }
  *count = static_cast<std::size_t>((padded - window.reach()) / window.stride + 1);
  return true;
}

Window window_down(const xnn::_XNNNodeConv& node) {
  return {node.kernel_height(), node.subsampling_height(), node.dilation_height(), node.padding_top(),
          node.padding_bottom()};
}

Window window_across(const xnn::_XNNNodeConv& node) {
  return {node.kernel_width(), node.subsampling_width(), node.dilation_width(), node.padding_left(),
          node.padding_right()};
}

bool covered_by(std::size_t size, const Window& window, std::uint64_t adjustment, std::size_t* count) {
  if (!window.sane() || size == 0 || size > kMostPadding || window.stride > kMostPadding ||
      window.reach() > kMostPadding || adjustment >= window.stride) {
    return false;
  }
  const std::uint64_t covered = window.stride * (size - 1) + adjustment + window.reach();
  const std::uint64_t padding = window.before + window.after;
  if (covered <= padding || covered - padding > kMostPadding) {
    return false;
  }
  *count = static_cast<std::size_t>(covered - padding);
  return true;
}

Fault image_fault(const NodeCheck& check) {
  const Dims& dims = check.dims(0);
  std::size_t count = 0;
  if (dims.rank != 4) {
    return check.input_fault(0, "images have batches, height, width and channels");
  }
  return count_all(dims, &count) && count != 0 ? Fault() : check.input_fault(0, "no image may be empty");
}

}  // namespace slipway::lean
