// Rules of nodes that go element by element, of softmax, and of those that only move elements.
#include <algorithm>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {
namespace {

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
             : check.wrong_output(0, "its scale is too far from those of what is summed up");
}

// Each group of the last `nonbatch_dims` sizes has numbers of its own, of which XNNPACK keeps as many as
// there were groups when the value was largest in bytes.
Fault check_dynamic(NodeCheck& check) {
  const GraphFact& output = check.output();
  const Dims& dims = check.dims(0);
  if (!is_one_of(check.input(0).type, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_bf16})) {
    return check.wrong_input(0);
  }
  if (output.nonbatch_dims == 0 || output.nonbatch_dims > dims.rank) {
    return check.wrong_output();
  }
  return check.give(dims);
}

}  // namespace

Fault check_elements(NodeCheck& check) {
  return check.give(check.dims(0));
}

Fault check_convert(NodeCheck& check) {
  if (check.output().type == xnn_datatype_qdint8) {
    return check_dynamic(check);
  }
  if (!is_one_of(check.input(0).type, kNumbers)) {
    return check.wrong_input(0);
  }
  if (!is_one_of(check.output().type, kNumbers)) {
    return check.wrong_output();
  }
  return check.give(check.dims(0));
}

Fault check_binary(NodeCheck& check) {
  SLIPWAY_RETURN_IF_FAULT(sum_fault(check));
  Dims result;
  if (!broadcast(check.dims(0), check.dims(1), &result)) {
    return check.wrong_input(1);
  }
  return check.give(result);
}

Fault check_softmax(NodeCheck& check) {
  if (check.dims(0).rank == 0 || check.dims(0).last() == 0) {
    return check.wrong_input(0);
  }
  return check.give(check.dims(0));
}

namespace {

using Sizes = flatbuffers::Vector<std::uint32_t>;

std::size_t length(const Sizes* sizes) {
  return sizes == nullptr ? 0 : sizes->size();
}

std::size_t at(const Sizes* sizes, std::size_t i) {
  return sizes->Get(static_cast<flatbuffers::uoffset_t>(i));
}

Fault lists_fault(const NodeCheck& check, std::size_t one, std::size_t other) {
  const std::size_t rank = check.dims(0).rank;
  return one == rank && other == rank ? Fault() : check.wrong_input(0);
}

}  // namespace

Fault check_transpose(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNStaticTranspose();
  SLIPWAY_RETURN_IF_FAULT(lists_fault(check, node.num_dims(), length(node.perm())));
  const Dims& input = check.dims(0);
  Dims result;
  result.rank = input.rank;
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < input.rank; ++i) {
    const std::size_t from = at(node.perm(), i);
    if (from >= input.rank || (seen & 1U << from) != 0) {
      return check.wrong_input(0);
    }
    seen |= 1U << from;
    result[i] = input[from];
  }
  return input.rank == 0 ? check.wrong_input(0) : check.give(result);
}

// A size of 0: all that there is.
Fault check_slice(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNStaticSlice();
  SLIPWAY_RETURN_IF_FAULT(lists_fault(check, length(node.offsets()), length(node.sizes())));
  SLIPWAY_RETURN_IF_FAULT(lists_fault(check, node.num_dims(), length(node.sizes())));
  const Dims& input = check.dims(0);
  Dims result = input;
  for (std::size_t i = 0; i < input.rank; ++i) {
    const std::size_t offset = at(node.offsets(), i);
    const std::size_t size = at(node.sizes(), i);
    if (offset >= input[i] || size > input[i] - offset || (size == 0 && offset != 0)) {
      return check.wrong_input(0);
    }
    result[i] = size == 0 ? input[i] : size;
  }
  return input.rank == 0 ? check.wrong_input(0) : check.give(result);
}

// One size may be 0: what is left.
Fault check_reshape(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNStaticReshape();
  if (length(node.new_shape()) != node.num_dims() || node.num_dims() > XNN_MAX_TENSOR_DIMS) {
    return "its new shape has " + std::to_string(length(node.new_shape())) + " sizes, and says " +
           std::to_string(node.num_dims());
  }
  Dims result;
  result.rank = node.num_dims();
  std::size_t open = result.rank;
  for (std::size_t i = 0; i < result.rank; ++i) {
    result[i] = at(node.new_shape(), i);
    if (result[i] == 0) {
      if (open != result.rank) {
        return "its new shape leaves two sizes open";
      }
      open = i;
      result[i] = 1;
    }
  }
  std::size_t before = 0;
  std::size_t after = 0;
  if (!count_all(check.dims(0), &before) || !count_all(result, &after)) {
    return check.wrong_input(0);
  }
  if (open != result.rank) {
    result[open] = before / after;
    after *= result[open];
  }
  return before != after ? check.wrong_input(0) : check.give(result);
}

Fault check_pad(NodeCheck& check) {
  const auto& node = *check.node().xnode_union_as_XNNStaticConstantPad();
  constexpr std::size_t kMostAround = std::size_t{1} << 30;
  SLIPWAY_RETURN_IF_FAULT(lists_fault(check, length(node.pre_paddings()), length(node.post_paddings())));
  Dims result = check.dims(0);
  for (std::size_t i = 0; i < result.rank; ++i) {
    const std::size_t before = at(node.pre_paddings(), i);
    const std::size_t after = at(node.post_paddings(), i);
    if (result[i] == 0 || result[i] > kMostAround || before > kMostAround || after > kMostAround) {
      return check.wrong_input(0);
    }
    result[i] += before + after;
  }
  return check.give(result);
}

Fault check_concatenate(NodeCheck& check) {
  const auto& node = *static_cast<const xnn::_XNNCat*>(check.node().xnode_union());
  const Dims& first = check.dims(0);
  // XNNPACK counts a negative one from the end.
  const std::int64_t stored = static_cast<std::int32_t>(node.axis());
  const std::int64_t axis = stored < 0 ? stored + static_cast<std::int64_t>(first.rank) : stored;
  if (axis < 0 || axis >= static_cast<std::int64_t>(first.rank)) {
    return check.wrong_input(0);
  }
  const auto along = static_cast<std::size_t>(axis);
  Dims result = first;
  result[along] = 0;
  for (std::size_t i = 0; i < check.inputs(); ++i) {
    const Dims& dims = check.dims(i);
    Dims same = dims;
    if (same.rank == first.rank) {
      same[along] = first[along];
    }
    if (same != first || dims[along] > kMostBytes - result[along]) {
      return check.wrong_input(i);
    }
    result[along] += dims[along];
  }
  return check.give(result);
}

}  // namespace slipway::lean
