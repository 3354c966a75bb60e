// Layers in 8 bits on processors with AVX2 and without VNNI: our kernels in place of XNNPACK's.
#pragma once

#include <cstddef>
#include <memory>

#include "lean/xnnpack/byte_tile.h"

struct xnn_gemm_config;
struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// Which of XNNPACK's tables has the kernel for a node.
enum class ByteTable { kNone, kStatic, kDynamic };

// Whether XNNPACK's kernels for integers are those for AVX2 here. They multiply in 16 bits, others in 8.
bool has_only_avx2();

// kNone where only XNNPACK has a kernel for the node.
ByteTable byte_table(const xnn_node& node, const xnn_value* values);

// The kernels of depthwise convolutions, kByteDepthwiseKernels of them. Null on processors for which XNNPACK
// has other kernels than AVX2's; those with AVX-VNNI have the same.
const ByteDepthwise* byte_depthwise();

// The kernel's name when it is ours; otherwise empty. One name for all rows: a kernel computes up to six.
const char* byte_name(void (*kernel)());

// While it is there, XNNPACK's table for such layers has our kernels.
class ByteKernels {
 public:
  explicit ByteKernels(ByteTable table);
  ~ByteKernels();
  ByteKernels(const ByteKernels&) = delete;
  ByteKernels& operator=(const ByteKernels&) = delete;

 private:
  xnn_gemm_config* config_ = nullptr;
  std::unique_ptr<xnn_gemm_config> before_;
};

}  // namespace slipway::lean
