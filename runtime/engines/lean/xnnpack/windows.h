// Windows that go over images: along one dimension at a time.
#pragma once

#include <cstdint>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {

struct Window {
  std::uint64_t kernel = 1;
  std::uint64_t stride = 1;
  std::uint64_t dilation = 1;
  std::uint64_t before = 0;  // padding
  std::uint64_t after = 0;

  bool sane() const;  // nothing that may not be 0 is, and no padding wraps around
  std::uint64_t reach() const { return (kernel - 1) * dilation + 1; }
};

// How many windows fit along `size`; false when none does. `same`: TensorFlow's padding, which makes them
// cover all.
bool windows_along(std::size_t size, const Window& window, bool same, std::size_t* count);
// The inverse, of a transposed convolution: what `size` windows cover.
bool covered_by(std::size_t size, const Window& window, std::uint64_t adjustment, std::size_t* count);

// A convolution's along the height and along the width.
Window window_down(const xnn::_XNNNodeConv& node);
Window window_across(const xnn::_XNNNodeConv& node);

// Batches, height, width, channels; none of them 0, for XNNPACK leaves the result's sizes open then.
Fault image_fault(const NodeCheck& check);

}  // namespace slipway::lean
