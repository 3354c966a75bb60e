// For which kernels the weights of a graph's layers were packed, as XNNPACK's operators say.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <string>
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

// What decides which kernels XNNPACK and KleidiAI use on this processor, and the choices that were ordered.
Checksum processor_sum(const std::string& choices = {});
// The same as a text, without choices.
std::string processor_text();

}  // namespace slipway::lean
