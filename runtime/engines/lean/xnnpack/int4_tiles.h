// Layers with 4-bit weights that have a scale for each block, on processors with AVX-512's VNNI or with AVX2
// alone: our kernels in place of XNNPACK's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct xnn_gemm_config;
struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// The rows of our tile for that node; 0 where only XNNPACK has a kernel for it.
std::size_t int4_rows(const xnn_node& node, const xnn_value* values);

// The kernel's name when it is ours; otherwise empty.
std::string int4_name(void (*kernel)());

// While it is there, XNNPACK's table for such layers has our kernel, with so many rows.
class Int4Kernels {
 public:
  explicit Int4Kernels(std::size_t rows);
  ~Int4Kernels();
  Int4Kernels(const Int4Kernels&) = delete;
  Int4Kernels& operator=(const Int4Kernels&) = delete;

 private:
  std::unique_ptr<xnn_gemm_config> before_;
};

}  // namespace slipway::lean
