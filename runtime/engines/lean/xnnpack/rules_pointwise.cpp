// Rules of nodes that go element by element, and of softmax.
#include <algorithm>
#include <cmath>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {
namespace {

constexpr auto kNumbers = {xnn_datatype_fp32,  xnn_datatype_fp16,   xnn_datatype_bf16,
                           xnn_datatype_qint8, xnn_datatype_quint8, xnn_datatype_int32};

bool is_number(xnn_datatype type) {
  return is_one_of(type, kNumbers);
}

// Sizes aligned at the last one: equal, or one of them is 1.
bool broadcast(const Dims& one, const Dims& other, Dims* result) {
  result->rank = std::max(one.rank, other.rank);
  for (std::size_t i = 1; i <= result->rank; ++i) {
    const std::size_t first = i <= one.rank ? one[one.rank - i] : 1;
    const std::size_t second = i <= other.rank ? other[other.rank - i] : 1;
    if (first != second && first != 1 && second != 1) {
      return false;
    }
    (*result)[result->rank - i] = first == 1 ? second : first;
  }
  return true;
}

// Sums of 8 bits are computed with whole numbers, by a shift that XNNPACK takes from the larger input's scale
// without a look at it: it is defined from 2^-10 up to 2^8 of the output's.
Fault sum_fault(const NodeCheck& check) {
  constexpr float kLeast = 0x1p-10F;
  constexpr float kMost = 0x1p8F;
  const xnn::XNodeUnion kind = check.node().xnode_union_type();
  const bool is_sum = kind == xnn::XNodeUnion::XNNAdd || kind == xnn::XNodeUnion::XNNSubtract;
  if (!is_sum || !is_one_of(check.output().type, {xnn_datatype_qint8, xnn_datatype_quint8})) {
    return {};
  }
  const float ratio =
      std::max(check.input(0).scale / check.output().scale, check.input(1).scale / check.output().scale);
  return ratio >= kLeast && ratio < kMost
             ? Fault()
             : check.output_fault("its scale is too far from those of what is summed up");
}

// Each group of the last `nonbatch_dims` sizes has numbers of its own, of which XNNPACK keeps as many as
// there were groups when the value was largest in bytes.
Fault check_dynamic(NodeCheck& check) {
  const GraphFact& output = check.output();
  const Dims& dims = check.dims(0);
  if (!is_one_of(check.input(0).type, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_bf16})) {
    return check.input_fault(0, "fp32, fp16 or bf16 is needed to quantize rows");
  }
  if (output.nonbatch_dims == 0 || output.nonbatch_dims > dims.rank) {
    return check.output_fault("it cannot be quantized by its last " + std::to_string(output.nonbatch_dims) +
                              " sizes");
  }
  return check.give(dims);
}

}  // namespace

Fault check_unary(NodeCheck& check) {
  const Fault fault = same_types(check, kNumbers);
  return !fault.empty() ? fault : check.give(check.dims(0));
}

Fault check_clamp(NodeCheck& check) {
  Fault fault = range_fault(check.node());
  if (fault.empty()) {
    fault = same_types(check, kNumbers);
  }
  return !fault.empty() ? fault : check.give(check.dims(0));
}

Fault check_convert(NodeCheck& check) {
  if (check.output().type == xnn_datatype_qdint8) {
    return check_dynamic(check);
  }
  if (!is_number(check.input(0).type)) {
    return check.input_fault(0, "it cannot be converted");
  }
  if (!is_number(check.output().type)) {
    return check.output_fault("nothing is converted to it");
  }
  return check.give(check.dims(0));
}

Fault check_binary(NodeCheck& check) {
  Fault fault = range_fault(check.node());
  if (fault.empty()) {
    fault = same_types(check, kNumbers);
  }
  if (!fault.empty()) {
    return fault;
  }
  if (check.input(1).type != check.input(0).type) {
    return check.input_fault(1, std::string("the other input is ") + name_of(check.input(0).type));
  }
  fault = sum_fault(check);
  if (!fault.empty()) {
    return fault;
  }
  Dims result;
  if (!broadcast(check.dims(0), check.dims(1), &result)) {
    return check.input_fault(1, "the other input is " + shape_text(check.dims(0)));
  }
  return check.give(result);
}

Fault check_softmax(NodeCheck& check) {
  const Fault fault = same_types(check, {xnn_datatype_fp32, xnn_datatype_fp16});
  if (!fault.empty()) {
    return fault;
  }
  if (check.dims(0).rank == 0 || check.dims(0).last() == 0) {
    return check.input_fault(0, "there is nothing along its last dimension");
  }
  return check.give(check.dims(0));
}

}  // namespace slipway::lean
