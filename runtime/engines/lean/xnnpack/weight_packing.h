// Weights of products in the order in which their kernels read them.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/microfnptr.h>

#include "lean/xnnpack/packed_weights.h"

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// For the operator that XNNPACK makes of the node next, by its tables as they are then: packs as XNNPACK
// would, scales and bias included, but with all of these threads, and into memory that nobody cleared.
// Nothing for layers of other types and for weights that are not constant: XNNPACK packs them. What the node
// points to must live as long.
Packer weights_packer(const xnn_node& node, const xnn_value* values, pthreadpool_t threads);

// Our functions for kernels that read one element of the depth at a time, in float32 or float16: of weights
// in rows and in columns. XNNPACK calls them for a product's second input. Only where there are
// float_tiles().
xnn_packw_gemm_goi_ukernel_fn pack_rows_of(xnn_datatype type);
xnn_packw_gemm_gio_ukernel_fn pack_columns_of(xnn_datatype type);

}  // namespace slipway::lean
