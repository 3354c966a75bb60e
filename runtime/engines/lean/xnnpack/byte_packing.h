// Packs weights of 8 bits in XNNPACK's order, faster than XNNPACK's functions for them.
#pragma once

#include <cstddef>
#include <cstdint>

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
  std::size_t padded_depth() const {
    const std::size_t together = kr * sr;
    return (depth + together - 1) / together * together;
  }
  std::size_t panel_bytes() const { return panel * (bias + window * padded_depth() * element) + panel_extra; }
};

// Whether pack_bytes has that order.
bool packs_bytes(const PanelSizes& sizes);

// Packs panels `first` to `last` of a group to `packed`, which is where the group's first one begins. Each
// column begins with its bias less the sum of its weights times `input_zero`. Columns that a panel has
// beside the weights' stay as they are. No bias: nullptr.
void pack_bytes(const PanelSizes& sizes, const std::int8_t* weights, const std::int32_t* bias,
                std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last);

}  // namespace slipway::lean
