#include "lean/xnnpack/depthwise.h"

#include <xnnpack/config.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstddef>

#include "lean/xnnpack/float_tiles.h"

namespace slipway::lean {
namespace {

// Taps of a depthwise convolution's window; 0 for other nodes.
std::size_t window_taps(const xnn_node& node) {
  if (node.type == xnn_node_type_depthwise_convolution_2d &&
      node.params.depthwise_convolution_2d.depth_multiplier == 1) {
    const auto& params = node.params.depthwise_convolution_2d;
    return std::size_t{params.kernel_height} * params.kernel_width;
  }
  if (node.type == xnn_node_type_convolution_2d && node.params.convolution_2d.group_input_channels == 1 &&
      node.params.convolution_2d.group_output_channels == 1) {
    const auto& params = node.params.convolution_2d;
    return std::size_t{params.kernel_height} * params.kernel_width;
  }
  return 0;
}

// nullptr when there is none.
const Depthwise* kernel_for(const xnn_node& node, const xnn_value* values) {
  const TileSet* set = float_tiles();
  const std::size_t taps = window_taps(node);
  if (set == nullptr || taps < 2 || values[node.inputs[0]].datatype != xnn_datatype_fp32) {
    return nullptr;
  }
  const auto* end = set->depthwise + kDepthwiseKernels;
  const auto* kernel =
      std::find_if(set->depthwise, end, [&](const Depthwise& one) { return one.taps >= taps; });
  // Many taps more than the window has would be computed for nothing; XNNPACK has kernels for few taps.
  return kernel == end || kernel->taps * 3 > taps * 4 ? nullptr : kernel;
}

}  // namespace

std::string depthwise_choice(const xnn_node& node, const xnn_value* values) {
  const Depthwise* kernel = kernel_for(node, values);
  return kernel == nullptr ? std::string() : std::to_string(kernel->taps) + "p";
}

DepthwiseKernels::DepthwiseKernels(const xnn_node& node, const xnn_value* values) {
  const TileSet* set = float_tiles();
  const Depthwise* kernel = kernel_for(node, values);
  if (kernel == nullptr) {
    return;
  }
  config_ = const_cast<xnn_dwconv_config*>(xnn_init_f32_dwconv_config());
  if (config_ == nullptr) {
    return;
  }
  std::copy_n(config_, XNN_MAX_F32_DWCONV_UKERNELS, before_);
  for (std::size_t i = 0; i < XNN_MAX_F32_DWCONV_UKERNELS; ++i) {
    xnn_dwconv_config& config = config_[i];
    config.minmax.unipass = reinterpret_cast<xnn_dwconv_unipass_ukernel_fn>(kernel->kernel);
    config.linear = {};
    config.channel_tile = static_cast<std::uint8_t>(set->lanes);
    config.channel_subtile = static_cast<std::uint8_t>(set->lanes);
    config.channel_round = 1;
    config.primary_tile = static_cast<std::uint8_t>(kernel->taps);
    config.middle_tile = 0;
    config.last_tile = 0;
  }
}

DepthwiseKernels::~DepthwiseKernels() {
  if (config_ != nullptr) {
    std::copy_n(before_, XNN_MAX_F32_DWCONV_UKERNELS, config_);
  }
}

std::string depthwise_name(void (*kernel)()) {
  const TileSet* set = float_tiles();
  for (std::size_t i = 0; set != nullptr && i < kDepthwiseKernels; ++i) {
    if (kernel == reinterpret_cast<void (*)()>(set->depthwise[i].kernel)) {
      return "slipway_f32_dwconv_" + std::to_string(set->depthwise[i].taps) + "p__" + set->isa;
    }
  }
  return {};
}

}  // namespace slipway::lean
