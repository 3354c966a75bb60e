// XNNPACK's own packing of weights, by all threads: each packs some panels with XNNPACK's function.
#pragma once

#include <pthreadpool.h>

#include <cstddef>

namespace slipway::lean {

// Weights of a product or a convolution, and the kernel that will read them.
struct PanelSizes {
  std::size_t groups = 1;
  std::size_t columns = 0;  // of a group: its outputs
  std::size_t window = 1;   // elements of a convolution's window
  std::size_t depth = 0;    // inputs of a group, for each element of the window
  std::size_t panel = 0;    // columns that are packed together: the kernel's nr
  std::size_t kr = 1;
  std::size_t sr = 1;
  std::size_t element = 0;      // bytes of a weight
  std::size_t bias = 0;         // and of what each column begins with
  std::size_t panel_extra = 0;  // bytes behind each panel

  std::size_t count() const { return (columns + panel - 1) / panel; }
  std::size_t column_bytes() const { return window * depth * element; }
  std::size_t panel_bytes() const {
    const std::size_t together = kr * sr;
    const std::size_t padded = (depth + together - 1) / together * together;
    return panel * (bias + window * padded * element) + panel_extra;
  }
};

// While it lives, XNNPACK packs the weights that this thread has it pack with all of those threads: of
// products and convolutions in float32, float16 and 8 bits. XNNPACK's tables are shared: one at a time.
class PanelPacking {
 public:
  explicit PanelPacking(pthreadpool_t threads);
  ~PanelPacking();
  PanelPacking(const PanelPacking&) = delete;
  PanelPacking& operator=(const PanelPacking&) = delete;
};

}  // namespace slipway::lean
