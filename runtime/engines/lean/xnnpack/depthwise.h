// Depthwise convolutions on kernels of ours, which compute several neighbours of a row at once; in float32
// and float16 windows of any size in one pass, in 8 bits those of 9 and 25 pixels.
#pragma once

#include <xnnpack.h>
#include <xnnpack/config-types.h>
#include <xnnpack/config.h>

#include <string>
#include <vector>

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// While one of these is there, XNNPACK's table has our kernels for the node when it is a depthwise
// convolution. Only one at a time.
class DepthwiseKernels {
 public:
  DepthwiseKernels(const xnn_node& node, const xnn_value* values);
  ~DepthwiseKernels();
  DepthwiseKernels(const DepthwiseKernels&) = delete;
  DepthwiseKernels& operator=(const DepthwiseKernels&) = delete;

 private:
  xnn_dwconv_config* config_ = nullptr;
  std::vector<xnn_dwconv_config> before_;
};

// Whether there is such a kernel for the node.
bool has_depthwise(const xnn_node& node, const xnn_value* values);

// "slipway_f32_dwconv_49p__avx512f"; empty when the kernel is not one of ours.
std::string depthwise_name(void (*kernel)());

}  // namespace slipway::lean
