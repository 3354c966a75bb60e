// Rules of pooling, and of images that change their size.
#include "lean/xnnpack/rules.h"

namespace slipway::lean {
namespace {

// XNNPACK passes flags that only reductions have.
constexpr std::uint32_t kKnownFlags = XNN_FLAG_TENSORFLOW_SAME_PADDING | XNN_FLAG_KEEP_DIMS;

struct Pool {
  Window rows;
  Window columns;
  std::uint32_t flags = 0;
};

Fault check_pool(NodeCheck& check, const Pool& pool, Dims* result) {
  Fault fault = flags_fault(pool.flags, kKnownFlags);
  fault = fault.empty() ? range_fault(check.node()) : fault;
  fault = fault.empty() ? image_fault(check) : fault;
  if (!fault.empty()) {
    return fault;
  }
  const Dims& input = check.dims(0);
  const bool same = (pool.flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0;
  *result = input;
  for (const auto& [window, along] : {std::pair{pool.rows, 1}, std::pair{pool.columns, 2}}) {
    const auto size = static_cast<std::size_t>(along);
    // A window over nothing but padding has no result.
    if (!windows_along(input[size], window, same, &(*result)[size]) || window.before >= window.reach() ||
        window.after >= window.reach()) {
      return check.input_fault(0, "its windows, stride, dilation and padding do not fit such images");
    }
  }
  // XNNPACK keeps a pointer for each pixel of each window.
  Dims pointers;
  pointers.rank = 5;
  pointers.size = {(*result)[1], (*result)[2], static_cast<std::size_t>(pool.rows.kernel),
                   static_cast<std::size_t>(pool.columns.kernel), sizeof(void*)};
  std::size_t bytes = 0;
  if (!count_all(pointers, &bytes)) {
    return "its windows are too large for any memory";
  }
  check.take(bytes);
  return {};
}

Pool pool_of(const xnn::_XNNPooling2D& node, bool dilated) {
  return {{node.pooling_height(), node.stride_height(), dilated ? node.dilation_height() : 1,
           node.padding_top(), node.padding_bottom()},
          {node.pooling_width(), node.stride_width(), dilated ? node.dilation_width() : 1,
           node.padding_left(), node.padding_right()},
          node.flags()};
}

}  // namespace

Fault check_average_pooling(NodeCheck& check) {
  Dims result;
  Fault fault = same_types(check, {xnn_datatype_fp32, xnn_datatype_fp16});
  fault = fault.empty()
              ? check_pool(check, pool_of(*check.node().xnode_union_as_XNNAvgPooling2d(), false), &result)
              : fault;
  return !fault.empty() ? fault : check.give(result);
}

Fault check_max_pooling(NodeCheck& check) {
  const Pool pool = pool_of(*check.node().xnode_union_as_XNNMaxPooling2d(), true);
  Dims result;
  Fault fault =
      same_types(check, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qint8, xnn_datatype_quint8});
  fault = fault.empty() ? check_pool(check, pool, &result) : fault;
  if (!fault.empty()) {
    return fault;
  }
  if (!same_quantization(check.input(0), check.output())) {
    return check.output_fault("its scale and zero point are not the input's");
  }
  return check.give(result);
}

// XNNPACK leaves the shape of the indices as it was declared.
Fault check_argmax_pooling(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNArgMaxPooling2d();
  const Pool pool = {
      {node.pooling_height(), node.pooling_height(), 1, node.padding_top(), node.padding_bottom()},
      {node.pooling_width(), node.pooling_width(), 1, node.padding_left(), node.padding_right()},
      node.flags()};
  Dims result;
  Fault fault = same_types(check, {xnn_datatype_fp32});
  fault = fault.empty() ? check_pool(check, pool, &result) : fault;
  fault = fault.empty() ? check.give(result) : fault;
  if (!fault.empty()) {
    return fault;
  }
  const GraphFact& indices = check.output(1);
  if (bits_of(indices.type) != 32 || indices.declared != result) {
    return check.output_fault("32-bit indices of " + shape_text(result) + " are needed", 1);
  }
  return check.give(result, 1);
}

// The mean over height and width.
Fault check_global_average(NodeCheck& check) {
  const Fault fault =
      same_types(check, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qint8, xnn_datatype_quint8});
  if (!fault.empty()) {
    return fault;
  }
  const Dims& input = check.dims(0);
  std::size_t count = 0;
  if (input.rank < 3 || !count_all(input, &count) || count == 0) {
    return check.input_fault(0, "there is no height and width to take the mean of");
  }
  Dims result = input;
  if (check.output().declared.rank == input.rank) {
    result[input.rank - 3] = result[input.rank - 2] = 1;
  } else {
    result.rank = input.rank - 2;
    result[result.rank - 1] = input.last();
  }
  return check.give(result);
}

Fault check_resize(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNStaticResizeBilinear2D();
  constexpr std::uint32_t kMost = 1U << 24;  // XNNPACK's own limit
  constexpr std::uint32_t kEither = XNN_FLAG_TENSORFLOW_LEGACY_MODE | XNN_FLAG_ALIGN_CORNERS;
  Fault fault = flags_fault(node.flags(), kEither | XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER);
  fault =
      fault.empty()
          ? same_types(check, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qint8, xnn_datatype_quint8})
          : fault;
  fault = fault.empty() ? image_fault(check) : fault;
  if (!fault.empty()) {
    return fault;
  }
  if ((node.flags() & kEither) == kEither || !same_quantization(check.input(0), check.output())) {
    return check.output_fault("its flags, or its scale, are not the input's");
  }
  const Dims& input = check.dims(0);
  Dims result = input;
  result[1] = node.new_height();
  result[2] = node.new_width();
  for (std::size_t i = 1; i < 3; ++i) {
    if (result[i] == 0 || result[i] >= kMost || input[i] >= kMost) {
      return check.input_fault(0, "it cannot become " + shape_text(result));
    }
  }
  // Four pointers and two weights for each pixel; the product of two 24-bit sizes goes into 64 bits only.
  if (result[1] > kMostBytes / 64 / result[2]) {
    return check.input_fault(0, "it cannot become " + shape_text(result));
  }
  check.take(result[1] * result[2] * (4 * sizeof(void*) + 2 * sizeof(float)));
  return check.give(result);
}

}  // namespace slipway::lean
