#include "lean/xnnpack/memory_plan.h"

#include <xnnpack/subgraph.h>

#include <cstddef>

namespace slipway::lean {

void forget_plan(xnn_runtime_t runtime) {
  runtime->memory_planned = false;
  for (std::size_t i = 0; i < runtime->num_values; ++i) {
    xnn_value& value = runtime->values[i];
    if (value.datatype == xnn_datatype_qdint8 && value.allocation_type == xnn_allocation_type_workspace) {
      value.size = 0;
    }
  }
}

}  // namespace slipway::lean
