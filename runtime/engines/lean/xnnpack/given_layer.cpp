#include "lean/xnnpack/given_layer.h"

#include <vector>

#include "lean/xnnpack/kernel_choices.h"

namespace slipway::lean {
namespace {

// A multiple of kr times sr of all of XNNPACK's kernels in float32.
constexpr std::size_t kGroup = 16;

}  // namespace

GivenLayer::GivenLayer(const GraphBuilder& graph, std::size_t inputs)
    : graph_(graph), lacking_((kGroup - inputs % kGroup) % kGroup) {}

void GivenLayer::take(std::uint32_t exported, std::uint32_t* id) {
  std::uint32_t wide = *id;
  if (*id != XNN_INVALID_VALUE_ID && widen(exported, &wide)) {
    status_ = convert(*id, wide);
    *id = wide;
  }
}

void GivenLayer::take_padded(std::uint32_t exported, std::uint32_t* id, std::size_t along) {
  take(exported, id);
  if (lacking_ == 0 || status_ != xnn_status_success) {
    return;
  }
  std::vector<std::size_t> dims = graph_.find(exported)->dims;
  const std::size_t none[XNN_MAX_TENSOR_DIMS] = {};
  std::size_t after[XNN_MAX_TENSOR_DIMS] = {};
  dims[along] += lacking_;
  after[along] = lacking_;
  std::uint32_t padded = XNN_INVALID_VALUE_ID;
  status_ = xnn_define_tensor_value(graph_.subgraph(), xnn_datatype_fp32, dims.size(), dims.data(), nullptr,
                                    XNN_INVALID_VALUE_ID, 0, &padded);
  if (status_ == xnn_status_success) {
    status_ = xnn_define_static_constant_pad(graph_.subgraph(), none, after, 0.0F, *id, padded, 0);
  }
  *id = padded;
}

xnn_status GivenLayer::define(const Range& range, std::uint32_t input, std::uint32_t filter,
                              std::uint32_t bias, std::uint32_t output, std::uint32_t exported_output,
                              std::uint32_t flags) {
  std::uint32_t result = output;
  const bool narrows = widen(exported_output, &result);
  if (status_ == xnn_status_success) {
    const PlainRows plain;
    status_ = xnn_define_fully_connected(graph_.subgraph(), range.min, range.max, input, filter, bias, result,
                                         flags);
  }
  return narrows && status_ == xnn_status_success ? convert(result, output) : status_;
}

// Makes a float32 value beside one of half precision.
bool GivenLayer::widen(std::uint32_t exported, std::uint32_t* id) {
  const GraphValue& value = *graph_.find(exported);
  if (value.datatype != xnn_datatype_fp16 || status_ != xnn_status_success) {
    return false;
  }
  status_ = xnn_define_tensor_value(graph_.subgraph(), xnn_datatype_fp32, value.dims.size(),
                                    value.dims.data(), nullptr, XNN_INVALID_VALUE_ID, 0, id);
  return status_ == xnn_status_success;
}

xnn_status GivenLayer::convert(std::uint32_t from, std::uint32_t to) {
  return xnn_define_unary(graph_.subgraph(), xnn_unary_convert, nullptr, from, to, 0);
}

}  // namespace slipway::lean
