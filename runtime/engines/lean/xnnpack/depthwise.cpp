#include "lean/xnnpack/depthwise.h"

#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstddef>

#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/float_tiles.h"
#include "lean/xnnpack/vector_kernels.h"

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

// A kernel of ours, and XNNPACK's table that it goes into.
struct Found {
  std::size_t taps = 0;  // 0: none
  void (*kernel)() = nullptr;
  const xnn_dwconv_config* (*table)() = nullptr;
  std::size_t entries = 0;
  std::size_t channels = 0;  // of a block of packed weights
};

// Many taps more than the window has would be computed for nothing; XNNPACK has kernels for few taps.
bool is_for(std::size_t kernel_taps, std::size_t taps) {
  return kernel_taps >= taps && kernel_taps * 3 <= taps * 4;
}

template <typename Kernel>
Found least_for(std::size_t taps, const Kernel* kernels, std::size_t count) {
  const Kernel* end = kernels + count;
  const Kernel* kernel =
      std::find_if(kernels, end, [&](const Kernel& one) { return is_for(one.taps, taps); });
  return kernel == end ? Found() : Found{kernel->taps, reinterpret_cast<void (*)()>(kernel->kernel)};
}

// 0 where this processor or this build is without them.
std::size_t byte_kernels() {
  return byte_depthwise() == nullptr ? 0 : kByteDepthwiseKernels;
}

Found kernel_for(const xnn_node& node, const xnn_value* values) {
  const TileSet* set = float_tiles();
  const std::size_t taps = window_taps(node);
  if (taps < 2) {
    return {};
  }
  const xnn_datatype type = values[node.inputs[0]].datatype;
  Found found;
  if (type == xnn_datatype_qint8 && is_bytes(values[node.inputs[1]])) {
    found = least_for(taps, byte_depthwise(), byte_kernels());
    found.table = &xnn_init_qs8_qc8w_dwconv_config;
    found.entries = XNN_MAX_QC8_DWCONV_UKERNELS;
    found.channels = kByteChannels;
  } else if (set != nullptr && type == xnn_datatype_fp32) {
    found = least_for(taps, set->depthwise, kDepthwiseKernels);
    found.table = &xnn_init_f32_dwconv_config;
    found.entries = XNN_MAX_F32_DWCONV_UKERNELS;
    found.channels = set->lanes;
  } else if (set != nullptr && type == xnn_datatype_fp16) {
    found = least_for(taps, set->half_depthwise, kHalfDepthwiseKernels);
    found.table = &xnn_init_f16_dwconv_config;
    found.entries = XNN_MAX_F16_DWCONV_UKERNELS;
    found.channels = set->lanes;
  }
  return found;
}

}  // namespace

bool has_depthwise(const xnn_node& node, const xnn_value* values) {
  return kernel_for(node, values).taps != 0;
}

DepthwiseKernels::DepthwiseKernels(const xnn_node& node, const xnn_value* values) {
  const Found found = kernel_for(node, values);
  if (found.taps == 0) {
    return;
  }
  config_ = const_cast<xnn_dwconv_config*>(found.table());
  if (config_ == nullptr) {
    return;
  }
  before_.assign(config_, config_ + found.entries);
  for (std::size_t i = 0; i < found.entries; ++i) {
    xnn_dwconv_config& config = config_[i];
    config.minmax.unipass = reinterpret_cast<xnn_dwconv_unipass_ukernel_fn>(found.kernel);
    config.linear = {};
    config.channel_tile = static_cast<std::uint8_t>(found.channels);
    config.channel_subtile = static_cast<std::uint8_t>(found.channels);
    config.channel_round = 1;
    config.primary_tile = static_cast<std::uint8_t>(found.taps);
    config.middle_tile = 0;
    config.last_tile = 0;
  }
}

DepthwiseKernels::~DepthwiseKernels() {
  if (config_ != nullptr) {
    std::copy(before_.begin(), before_.end(), config_);
  }
}

std::string depthwise_name(void (*kernel)()) {
  const auto taps_in = [&](const auto* kernels, std::size_t count) -> std::size_t {
    for (std::size_t i = 0; i < count; ++i) {
      if (kernel == reinterpret_cast<void (*)()>(kernels[i].kernel)) {
        return kernels[i].taps;
      }
    }
    return 0;
  };
  const char* type = "qs8_qc8w";
  const char* isa = "avx2";
  std::size_t taps = taps_in(byte_depthwise(), byte_kernels());
  const bool bytes = taps != 0;
  if (const TileSet* set = float_tiles(); set != nullptr && !bytes) {
    isa = set->isa;
    type = "f32";
    taps = taps_in(set->depthwise, kDepthwiseKernels);
    if (taps == 0) {
      type = "f16_f32acc";
      taps = taps_in(set->half_depthwise, kHalfDepthwiseKernels);
    }
  }
  if (taps == 0) {
    return {};
  }
  return std::string("slipway_") + type + "_dwconv_" + std::to_string(taps) + (bytes ? "p16c__" : "p__") +
         isa;
}

}  // namespace slipway::lean
