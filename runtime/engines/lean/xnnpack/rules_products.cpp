// Rules of products by matrices: fully-connected layers, batched products, attention.
#include <cmath>
#include <iterator>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {
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

// A row quantized by itself brings numbers of its own; the product takes one pair of them a row.
Fault rows_fault(const NodeCheck& check) {
  const GraphFact& input = check.input(0);
  const Dims& dims = check.dims(0);
  std::size_t together = 0;
  if (input.type == xnn_datatype_qdint8 &&
      (input.nonbatch_dims == 0 || input.nonbatch_dims > dims.rank ||
       !count_between(dims, dims.rank - input.nonbatch_dims, dims.rank - 1, &together) || together != 1)) {
    return check.input_fault(0, "each of its rows has to be quantized by itself");
  }
  return {};
}

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
  SLIPWAY_RETURN_IF_FAULT(range_fault(check.node()));
  SLIPWAY_RETURN_IF_FAULT(
      types_fault(check, kFullyConnected, std::size(kFullyConnected), "weights that are "));
  const GraphFact& filter = check.input(1);
  const Dims& weights = check.dims(1);
  if (!filter.constant && !may_come_later(filter)) {
    return check.input_fault(1, "weights of this type have to be constant");
  }
  if (weights.rank != 2 || weights[0] == 0 || weights[1] == 0) {
    return check.input_fault(1, "weights have two sizes");
  }
  const std::size_t inputs = transposed ? weights[0] : weights[1];
  const std::size_t outputs = transposed ? weights[1] : weights[0];
  const std::size_t along = transposed ? 1 : 0;
  if (is_one_of(filter.type, {xnn_datatype_qcint8, xnn_datatype_qcint4, xnn_datatype_qbint4}) &&
      filter.channel_dim != along) {
    return check.input_fault(1, "its scales have to go along its outputs");
  }
  if (filter.type == xnn_datatype_qbint4 && (transposed || inputs % filter.block_size != 0)) {
    return check.input_fault(1, "its blocks do not divide its inputs");
  }
  std::size_t count = 0;
  if (check.has(2)) {
    const GraphFact& bias = check.input(2);
    // XNNPACK leaves it out, without a word, where weights are packed before it comes.
    if (!bias.constant && (!may_come_later(bias) || !may_come_later(filter))) {
      return check.input_fault(2, "the bias has to be constant");
    }
    if (!count_all(check.dims(2), &count) || count != outputs) {
      return check.input_fault(2,
                               "the bias has one number for each of " + std::to_string(outputs) + " outputs");
    }
  }
  const Dims& input = check.dims(0);
  if (input.rank == 0 || input.last() != inputs) {
    return check.input_fault(0, "the weights take rows of " + std::to_string(inputs));
  }
  // Layers whose weights come with the call are padded, which no empty tensor can be.
  if (!filter.constant && (!count_all(input, &count) || count == 0)) {
    return check.input_fault(0, "weights that come when the program runs take no empty input");
  }
  SLIPWAY_RETURN_IF_FAULT(rows_fault(check));
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
  if (!is_one_of(one.type, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qdint8})) {
    return check.input_fault(0, "the node does not take this type");
  }
  if (other.type != (dynamic ? xnn_datatype_qcint8 : one.type) || (dynamic && !other.constant)) {
    return check.input_fault(1, std::string("it does not go with one that is ") + name_of(one.type));
  }
  if (check.output().type != result_type) {
    return check.output_fault(std::string("its result is ") + name_of(result_type));
  }
  const Dims& a = check.dims(0);
  const Dims& b = check.dims(1);
  if (a.rank < 2 || b.rank < 2) {
    return check.input_fault(a.rank < 2 ? 0 : 1, "a matrix has two sizes");
  }
  const bool transposed = (table.flags() & XNN_FLAG_TRANSPOSE_B) != 0;
  const std::size_t depth = transposed ? b.last() : b[b.rank - 2];
  const std::size_t columns = transposed ? b[b.rank - 2] : b.last();
  if (a.last() != depth || depth == 0 || columns == 0 || a[a.rank - 2] == 0) {
    return check.input_fault(1, "the other matrix has rows of " + std::to_string(a.last()));
  }
  std::size_t batches = 0;
  if (dynamic && (other.channel_dim != (transposed ? b.rank - 2 : b.rank - 1) ||
                  !count_between(b, 0, b.rank - 2, &batches) || batches != 1)) {
    // XNNPACK reads scales for each batch.
    return check.input_fault(1, "its scales have to go along its columns, and it has to be one matrix");
  }
  Dims result;
  result.rank = a.rank > b.rank ? a.rank : b.rank;
  for (std::size_t i = 3; i <= result.rank; ++i) {
    const std::size_t first = i <= a.rank ? a[a.rank - i] : 1;
    const std::size_t second = i <= b.rank ? b[b.rank - i] : 1;
    if (first != second && ((first != 1 && second != 1) || first == 0 || second == 0)) {
      return check.input_fault(1, "its batches do not go with those of " + shape_text(a));
    }
    result[result.rank - i] = first == 1 ? second : first;
  }
  SLIPWAY_RETURN_IF_FAULT(rows_fault(check));
  result[result.rank - 2] = a[a.rank - 2];
  result[result.rank - 1] = columns;
  return check.give(result);
}

// Query [batches, heads, tokens, channels]; key and value have the query's heads, or one for all.
Fault check_attention(NodeCheck& check) {
  for (std::size_t i = 0; i < check.inputs(); ++i) {
    if (check.input(i).type != check.output().type ||
        !is_one_of(check.input(i).type, {xnn_datatype_fp32, xnn_datatype_fp16})) {
      return check.input_fault(i, "fp32 or fp16 is needed, the same everywhere");
    }
  }
  const Dims& query = check.dims(0);
  const Dims& key = check.dims(1);
  const Dims& value = check.dims(2);
  const Dims& scale = check.dims(3);
  const Dims& mask = check.dims(4);
  if (query.rank < 3) {
    return check.input_fault(0, "a query has heads, tokens and channels");
  }
  if (key.rank < 2 || (key.rank != query.rank && key.rank + 1 != query.rank)) {
    return check.input_fault(1, "the query is " + shape_text(query));
  }
  if (value.rank != key.rank) {
    return check.input_fault(2, "the key is " + shape_text(key));
  }
  // All before tokens and channels, which a key for all heads shares with the query but for the heads.
  for (std::size_t i = 0; i + 2 < key.rank; ++i) {
    if (key[i] != query[i] || value[i] != query[i]) {
      return check.input_fault(key[i] != query[i] ? 1 : 2, "the query is " + shape_text(query));
    }
  }
  const std::size_t tokens = query[query.rank - 2];
  const std::size_t others = key[key.rank - 2];
  if (key.last() != query.last() || query.last() == 0 || others == 0 || tokens == 0) {
    return check.input_fault(1, "the query is " + shape_text(query));
  }
  if (value[value.rank - 2] != others || value.last() == 0) {
    return check.input_fault(2, "the key is " + shape_text(key));
  }
  if (scale.rank != 1 || scale[0] != query.last()) {
    return check.input_fault(3, "the query has " + std::to_string(query.last()) + " channels");
  }
  if (mask.rank != 2 || mask[0] != tokens || mask[1] != others) {
    return check.input_fault(
        4, "a mask of " + std::to_string(tokens) + " by " + std::to_string(others) + " is needed");
  }
  Dims result = query;
  result[result.rank - 1] = value.last();
  return check.give(result);
}

}  // namespace slipway::lean
