// For which kernels the weights of a graph's layers were packed, as XNNPACK's operators say.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <vector>

#include "base/checksum.h"
#include "lean/xnnpack/weights_file.h"

namespace slipway::lean {

struct LayerLayout {
  std::size_t index = 0;  // what the provider of weights answered with
  PackedLayout layout;
  std::size_t size = 0;  // bytes that the layer reads; 0 for kinds of which this is not known
};

// Of all operators whose weights are `provider`'s.
std::vector<LayerLayout> layouts_of(xnn_runtime_t runtime, xnn_weights_cache_t provider);

// A distance in this program that is the same in each of its processes.
std::int64_t distance_of(void (*function)());

// What decides which kernels are used on this processor. `kleidiai`: whether KleidiAI's may be.
Checksum processor_sum(bool kleidiai);

}  // namespace slipway::lean
