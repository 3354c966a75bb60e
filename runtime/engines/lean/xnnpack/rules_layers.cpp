// Rules of convolutions, of pooling, and of images that change their size, in the order NHWC; and of products
// by matrices: fully-connected layers, batched products, attention.
#include <iterator>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {
namespace {

// Batches, height, width, channels; none of them 0, for XNNPACK leaves the result's sizes open then.
Fault image_fault(const NodeCheck& check) {
  const Dims& dims = check.dims(0);
  std::size_t count = 0;
  return dims.rank == 4 && count_all(dims, &count) && count != 0 ? Fault() : check.wrong_input(0);
}

// What XNNPACK computes with one another in layers with weights.
struct LayerTypes {
  xnn_datatype input;
  xnn_datatype filter;
  xnn_datatype bias;
  xnn_datatype output;
};

// The node's types are in no row.
Fault types_fault(const NodeCheck& check, const LayerTypes* rows, std::size_t count) {
  for (const LayerTypes* types = rows; types != rows + count; ++types) {
    if (types->input == check.input(0).type && types->filter == check.input(1).type &&
        types->output == check.output().type && (!check.has(2) || types->bias == check.input(2).type)) {
      return {};
    }
  }
  return std::string("an input, weights and a result that are ") + name_of(check.input(0).type) + ", " +
         name_of(check.input(1).type) + " and " + name_of(check.output().type) + " do not go together";
}

// Other flags than these.
Fault flags_fault(std::uint32_t flags, std::uint32_t known) {
  return (flags & ~known) == 0 ? Fault() : "its flags " + std::to_string(flags) + " are unknown";
}

// What each kind takes; the last is of plain convolutions alone, the one before of those that are not
// depthwise.
constexpr LayerTypes kTypes[] = {
    {xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_fp16, xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp16},
    {xnn_datatype_qint8, xnn_datatype_qint8, xnn_datatype_qint32, xnn_datatype_qint8},
    {xnn_datatype_qint8, xnn_datatype_qcint8, xnn_datatype_qcint32, xnn_datatype_qint8},
    {xnn_datatype_quint8, xnn_datatype_quint8, xnn_datatype_qint32, xnn_datatype_quint8},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp32, xnn_datatype_fp16},
};

// A bias has one number for each output, and is constant where it may not come when the program runs.
Fault bias_fault(const NodeCheck& check, std::uint64_t outputs, bool may_come_later) {
  std::size_t count = 0;
  return !check.has(2) || ((check.input(2).constant || may_come_later) && count_all(check.dims(2), &count) &&
                           count == outputs)
             ? Fault()
             : check.wrong_input(2);
}

// The filter is [outputs, height, width, inputs of a group], or [1, height, width, outputs] of a depthwise
// one.
Fault weights_fault(const NodeCheck& check, const xnn::_XNNNodeConv& node, std::uint64_t outputs,
                    bool depthwise) {
  const GraphFact& filter = check.input(1);
  const Dims& dims = check.dims(1);
  if (!filter.constant || dims.rank != 4 || dims[0] != (depthwise ? 1 : outputs) ||
      dims[1] != node.kernel_height() || dims[2] != node.kernel_width() ||
      dims[3] != (depthwise ? outputs : node.group_input_channels()) ||
      (filter.type == xnn_datatype_qcint8 && filter.channel_dim != (depthwise ? 3U : 0U))) {
    return check.wrong_input(1);
  }
  return bias_fault(check, outputs, false);
}

constexpr const char* kEachRow = "each of its rows has to be quantized by itself";

// Whether each image, or each row, of a value that is quantized at run time has numbers of its own: XNNPACK
// takes one pair of them for each.
bool quantized_by(const GraphFact& input, const Dims& dims, bool images) {
  std::size_t count = 0;
  if (input.type != xnn_datatype_qdint8) {
    return true;
  }
  if (input.nonbatch_dims == 0 || input.nonbatch_dims > dims.rank) {
    return false;
  }
  const std::size_t batch = dims.rank - input.nonbatch_dims;
  return images ? count_between(dims, 0, batch, &count) && count == dims[0]
                : count_between(dims, batch, dims.rank - 1, &count) && count == 1;
}

}  // namespace

Fault check_convolution(NodeCheck& check) {
  const xnn::XNodeUnion kind = check.node().xnode_union_type();
  const auto& node = *static_cast<const xnn::_XNNNodeConv*>(check.node().xnode_union());
  const bool depthwise = kind == xnn::XNodeUnion::XNNDepthwiseConv2d;
  const bool transposed = kind == xnn::XNodeUnion::XNNConvTranspose2d;
  const std::uint64_t outputs = std::uint64_t{node.groups()} * node.group_output_channels();
  const std::uint64_t inputs = std::uint64_t{node.groups()} * node.group_input_channels();
  const std::size_t others = depthwise ? 2 : transposed ? 1 : 0;
  constexpr std::uint32_t kForwardFlags =
      XNN_FLAG_TENSORFLOW_SAME_PADDING | XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER;
  SLIPWAY_RETURN_IF_FAULT(flags_fault(node.flags(), transposed ? 0 : kForwardFlags));
  SLIPWAY_RETURN_IF_FAULT(types_fault(check, kTypes, std::size(kTypes) - others));
  SLIPWAY_RETURN_IF_FAULT(image_fault(check));
  Dims result = check.dims(0);
  if (inputs == 0 || outputs == 0 || (depthwise && node.group_input_channels() != 1) || result[3] != inputs) {
    return check.wrong_input(0);
  }
  if (!quantized_by(check.input(0), result, true)) {
    return check.wrong_input(0, "each of its images has to be quantized by itself");
  }
  SLIPWAY_RETURN_IF_FAULT(weights_fault(check, node, outputs, depthwise));
  const bool same = (node.flags() & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0;
  const Window down = window_down(node);
  const Window across = window_across(node);
  const bool fits = transposed ? covered_by(result[1], down, node.adjustment_height(), &result[1]) &&
                                     covered_by(result[2], across, node.adjustment_width(), &result[2])
                               : windows_along(result[1], down, same, &result[1]) &&
                                     windows_along(result[2], across, same, &result[2]);
  result[3] = static_cast<std::size_t>(outputs);
  return fits ? check.give(result) : check.wrong_input(0);
}

namespace {

// XNNPACK passes flags that only reductions have.
constexpr std::uint32_t kKnownFlags = XNN_FLAG_TENSORFLOW_SAME_PADDING | XNN_FLAG_KEEP_DIMS;

struct Pool {
  Window rows;
  Window columns;
  std::uint32_t flags = 0;
};

Fault check_pool(NodeCheck& check, const Pool& pool, Dims* result) {
  SLIPWAY_RETURN_IF_FAULT(flags_fault(pool.flags, kKnownFlags));
  SLIPWAY_RETURN_IF_FAULT(image_fault(check));
  const Dims& input = check.dims(0);
  const bool same = (pool.flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0;
  *result = input;
  for (const auto& [window, along] : {std::pair{pool.rows, 1}, std::pair{pool.columns, 2}}) {
    const auto size = static_cast<std::size_t>(along);
    // A window over nothing but padding has no result.
    if (!windows_along(input[size], window, same, &(*result)[size]) || window.before >= window.reach() ||
        window.after >= window.reach()) {
      return check.wrong_input(0);
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

}  // namespace

Fault check_pooling(NodeCheck& check) {
  const auto& node = *static_cast<const xnn::_XNNPooling2D*>(check.node().xnode_union());
  const bool dilated = check.node().xnode_union_type() == xnn::XNodeUnion::XNNMaxPooling2d;
  const Pool pool = {{node.pooling_height(), node.stride_height(), dilated ? node.dilation_height() : 1,
                      node.padding_top(), node.padding_bottom()},
                     {node.pooling_width(), node.stride_width(), dilated ? node.dilation_width() : 1,
                      node.padding_left(), node.padding_right()},
                     node.flags()};
  Dims result;
  SLIPWAY_RETURN_IF_FAULT(check_pool(check, pool, &result));
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
  SLIPWAY_RETURN_IF_FAULT(check_pool(check, pool, &result));
  SLIPWAY_RETURN_IF_FAULT(check.give(result));
  const GraphFact& indices = check.output(1);
  if (bits_of(indices.type) != 32 || indices.declared != result) {
    return check.wrong_output(1);
  }
  return check.give(result, 1);
}

// The mean over height and width.
Fault check_global_average(NodeCheck& check) {
  const Dims& input = check.dims(0);
  std::size_t count = 0;
  if (input.rank < 3 || !count_all(input, &count) || count == 0) {
    return check.wrong_input(0);
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
  SLIPWAY_RETURN_IF_FAULT(flags_fault(node.flags(), kEither | XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER));
  SLIPWAY_RETURN_IF_FAULT(image_fault(check));
  if ((node.flags() & kEither) == kEither) {
    return check.wrong_output();
  }
  const Dims& input = check.dims(0);
  Dims result = input;
  result[1] = node.new_height();
  result[2] = node.new_width();
  for (std::size_t i = 1; i < 3; ++i) {
    if (result[i] == 0 || result[i] >= kMost || input[i] >= kMost) {
      return check.wrong_input(0);
    }
  }
  // Four pointers and two weights for each pixel; the product of two 24-bit sizes goes into 64 bits only.
  if (result[1] > kMostBytes / 64 / result[2]) {
    return check.wrong_input(0);
  }
  check.take(result[1] * result[2] * (4 * sizeof(void*) + 2 * sizeof(float)));
  return check.give(result);
}

namespace {

// XNNPACK would also take inputs in float32 with quantized weights, and compute wrong results
// (docs/proofs.md).
constexpr LayerTypes kFullyConnected[] = {
    {xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_fp16, xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp16},
    {xnn_datatype_fp16, xnn_datatype_fp16, xnn_datatype_fp16, xnn_datatype_fp16},
    {xnn_datatype_qdint8, xnn_datatype_qcint4, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_qdint8, xnn_datatype_qcint4, xnn_datatype_fp32, xnn_datatype_fp16},
    {xnn_datatype_qdint8, xnn_datatype_qbint4, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_qdint8, xnn_datatype_qbint4, xnn_datatype_fp32, xnn_datatype_fp16},
    {xnn_datatype_qdint8, xnn_datatype_qbint4, xnn_datatype_fp32, xnn_datatype_bf16},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp32, xnn_datatype_fp32},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp32, xnn_datatype_fp16},
    {xnn_datatype_qint8, xnn_datatype_qcint8, xnn_datatype_qcint32, xnn_datatype_qint8},
    {xnn_datatype_qint8, xnn_datatype_qint8, xnn_datatype_qint32, xnn_datatype_qint8},
    {xnn_datatype_quint8, xnn_datatype_quint8, xnn_datatype_qint32, xnn_datatype_quint8},
};

// Weights and a bias may come when the program runs in float32, and in half precision, which is converted to
// it.
bool may_come_later(const GraphFact& fact) {
  return fact.type == xnn_datatype_fp32 || fact.type == xnn_datatype_fp16;
}

}  // namespace

Fault check_fully_connected(NodeCheck& check) {
  const auto& table = *check.node().xnode_union_as_XNNFullyConnected();
  const bool transposed = (table.flags() & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  SLIPWAY_RETURN_IF_FAULT(flags_fault(table.flags(), XNN_FLAG_TRANSPOSE_WEIGHTS));
  SLIPWAY_RETURN_IF_FAULT(types_fault(check, kFullyConnected, std::size(kFullyConnected)));
  const GraphFact& filter = check.input(1);
  const Dims& weights = check.dims(1);
  if ((!filter.constant && !may_come_later(filter)) || weights.rank != 2 || weights[0] == 0 ||
      weights[1] == 0) {
    return check.wrong_input(1);
  }
  const std::size_t inputs = transposed ? weights[0] : weights[1];
  const std::size_t outputs = transposed ? weights[1] : weights[0];
  const bool scaled = is_one_of(filter.type, {xnn_datatype_qcint8, xnn_datatype_qcint4, xnn_datatype_qbint4});
  if ((scaled && filter.channel_dim != (transposed ? 1U : 0U)) ||
      (filter.type == xnn_datatype_qbint4 && (transposed || inputs % filter.block_size != 0))) {
    return check.wrong_input(1);
  }
  // XNNPACK leaves a bias out, without a word, where weights are packed before it comes.
  const bool later = check.has(2) && may_come_later(check.input(2)) && may_come_later(filter);
  SLIPWAY_RETURN_IF_FAULT(bias_fault(check, outputs, later));
  const Dims& input = check.dims(0);
  std::size_t count = 0;
  // Layers whose weights come with the call are padded, which no empty tensor can be.
  if (input.rank == 0 || input.last() != inputs ||
      (!filter.constant && (!count_all(input, &count) || count == 0))) {
    return check.wrong_input(0);
  }
  if (!quantized_by(check.input(0), input, false)) {
    return check.wrong_input(0, kEachRow);
  }
  Dims result = input;
  result[result.rank - 1] = outputs;
  return check.give(result);
}

Fault check_batch_matrix_multiply(NodeCheck& check) {
  const auto& table = *check.node().xnode_union_as_XNNBatchMatrixMultiply();
  SLIPWAY_RETURN_IF_FAULT(flags_fault(table.flags(), XNN_FLAG_TRANSPOSE_B));
  const GraphFact& one = check.input(0);
  const GraphFact& other = check.input(1);
  const bool dynamic = one.type == xnn_datatype_qdint8;
  const xnn_datatype result_type = dynamic ? xnn_datatype_fp32 : one.type;
  const Dims& a = check.dims(0);
  const Dims& b = check.dims(1);
  if (!is_one_of(one.type, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qdint8}) || a.rank < 2) {
    return check.wrong_input(0);
  }
  if (!quantized_by(one, a, false)) {
    return check.wrong_input(0, kEachRow);
  }
  if (other.type != (dynamic ? xnn_datatype_qcint8 : one.type) || (dynamic && !other.constant) ||
      b.rank < 2) {
    return check.wrong_input(1);
  }
  if (check.output().type != result_type) {
    return check.wrong_output();
  }
  const bool transposed = (table.flags() & XNN_FLAG_TRANSPOSE_B) != 0;
  const std::size_t depth = transposed ? b.last() : b[b.rank - 2];
  const std::size_t columns = transposed ? b[b.rank - 2] : b.last();
  std::size_t batches = 0;
  // XNNPACK reads scales for each batch.
  if (a.last() != depth || depth == 0 || columns == 0 || a[a.rank - 2] == 0 ||
      (dynamic && (other.channel_dim != (transposed ? b.rank - 2 : b.rank - 1) ||
                   !count_between(b, 0, b.rank - 2, &batches) || batches != 1))) {
    return check.wrong_input(1);
  }
  Dims result;
  result.rank = a.rank > b.rank ? a.rank : b.rank;
  for (std::size_t i = 3; i <= result.rank; ++i) {
    const std::size_t first = i <= a.rank ? a[a.rank - i] : 1;
    const std::size_t second = i <= b.rank ? b[b.rank - i] : 1;
    if (first != second && ((first != 1 && second != 1) || first == 0 || second == 0)) {
      return check.wrong_input(1);
    }
    result[result.rank - i] = first == 1 ? second : first;
  }
  result[result.rank - 2] = a[a.rank - 2];
  result[result.rank - 1] = columns;
  return check.give(result);
}

// Query [batches, heads, tokens, channels]; key and value have the query's heads, or one for all.
Fault check_attention(NodeCheck& check) {
  const Dims& query = check.dims(0);
  const Dims& key = check.dims(1);
  const Dims& value = check.dims(2);
  const Dims& scale = check.dims(3);
  const Dims& mask = check.dims(4);
  if (query.rank < 3) {
    return check.wrong_input(0);
  }
  if (key.rank < 2 || (key.rank != query.rank && key.rank + 1 != query.rank)) {
    return check.wrong_input(1);
  }
  // All before tokens and channels, which a key for all heads shares with the query but for the heads.
  for (std::size_t i = 0; i + 2 < key.rank; ++i) {
    if (value.rank != key.rank || key[i] != query[i] || value[i] != query[i]) {
      return check.wrong_input(key[i] != query[i] ? 1 : 2);
    }
  }
  const std::size_t tokens = query[query.rank - 2];
  const std::size_t others = key[key.rank - 2];
  if (key.last() != query.last() || query.last() == 0 || others == 0 || tokens == 0) {
    return check.wrong_input(1);
  }
  if (value.rank != key.rank || value[value.rank - 2] != others || value.last() == 0) {
    return check.wrong_input(2);
  }
  if (scale.rank != 1 || scale[0] != query.last()) {
    return check.wrong_input(3);
  }
  if (mask.rank != 2 || mask[0] != tokens || mask[1] != others) {
    return check.wrong_input(4);
  }
  Dims result = query;
  result[result.rank - 1] = value.last();
  return check.give(result);
}

}  // namespace slipway::lean
