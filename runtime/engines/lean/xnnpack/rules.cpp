#include "lean/xnnpack/rules.h"

#include <algorithm>

namespace slipway::lean {
namespace {

constexpr std::uint64_t kMostPadding = std::uint64_t{1} << 30;

// Whether two values of 8-bit integers mean the same numbers; of other types always.
bool same_quantization(const GraphFact& one, const GraphFact& other) {
  return !is_one_of(one.type, {xnn_datatype_qint8, xnn_datatype_quint8}) ||
         (one.scale == other.scale && one.zero_point == other.zero_point);
}

}  // namespace

Fault NodeCheck::run(const NodeRule& rule) {
  const xnn::OutputMinMax* range = node().output_min_max();
  // NaN is in no order.
  if (range != nullptr && !(range->output_min() <= range->output_max())) {
    return "the lower bound of its result is above the upper one";
  }
  for (std::size_t i = 0; i < inputs() && rule.types.types.size() != 0; ++i) {
    if (!is_one_of(input(i).type, rule.types.types) || input(i).type != input(0).type) {
      return wrong_input(i);
    }
    if (output().type != input(i).type || (rule.types.moved && !same_quantization(input(i), output()))) {
      return wrong_output();
    }
  }
  return rule.check(*this);
}

Fault NodeCheck::give(const Dims& dims, std::size_t output) {
  const GraphFact& fact = this->output(output);
  std::size_t bytes = 0;
  // What is decided when the graph is built (by XNNPACK, and by us) stays true for every shape.
  if (dims.rank > XNN_MAX_TENSOR_DIMS || !count_bytes(dims, fact.type, &bytes) ||
      dims.rank != fact.declared.rank) {
    return "value " + std::to_string(fact.id) + " is declared as " + shape_text(fact.declared) +
           ", and the node gives " + shape_text(dims);
  }
  shapes_[node_.operands.outputs[output]] = dims;
  return {};
}

Fault NodeCheck::wrong_input(std::size_t i, const std::string& why) const {
  return "value " + std::to_string(input(i).id) + " is " + name_of(input(i).type) + " " +
         shape_text(dims(i)) + ", which it does not take beside its other values and settings" +
         (why.empty() ? "" : ": " + why);
}

Fault NodeCheck::wrong_output(std::size_t i, const std::string& why) const {
  return "value " + std::to_string(output(i).id) + " is declared as " + name_of(output(i).type) + " " +
         shape_text(output(i).declared) + ", which it does not give" + (why.empty() ? "" : ": " + why);
}

bool is_layer(xnn::XNodeUnion kind) {
  return kind == xnn::XNodeUnion::XNNFullyConnected || kind == xnn::XNodeUnion::XNNConv2d ||
         kind == xnn::XNodeUnion::XNNDepthwiseConv2d || kind == xnn::XNodeUnion::XNNConvTranspose2d;
}

bool is_one_of(xnn_datatype type, std::initializer_list<xnn_datatype> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool Window::sane() const {
  return kernel != 0 && stride != 0 && dilation != 0 && before < kMostPadding && after < kMostPadding;
}

bool windows_along(std::size_t size, const Window& window, bool same, std::size_t* count) {
  if (!window.sane() || size == 0 || size > kMostPadding) {
    return false;
  }
  if (same) {
    *count = static_cast<std::size_t>((size - 1) / window.stride + 1);
    return (*count - 1) * window.stride + window.reach() >= size && window.before == 0 && window.after == 0;
  }
  const std::uint64_t padded = window.before + size + window.after;
  if (window.reach() > padded) {
    return false;
  }
  *count = static_cast<std::size_t>((padded - window.reach()) / window.stride + 1);
  return true;
}

Window window_down(const xnn::_XNNNodeConv& node) {
  return {node.kernel_height(), node.subsampling_height(), node.dilation_height(), node.padding_top(),
          node.padding_bottom()};
}

Window window_across(const xnn::_XNNNodeConv& node) {
  return {node.kernel_width(), node.subsampling_width(), node.dilation_width(), node.padding_left(),
          node.padding_right()};
}

bool every_pixel(const Window& window) {
  return window.kernel == 1 && window.stride == 1 && window.before == 0 && window.after == 0;
}

bool covered_by(std::size_t size, const Window& window, std::uint64_t adjustment, std::size_t* count) {
  if (!window.sane() || size == 0 || size > kMostPadding || window.stride > kMostPadding ||
      window.reach() > kMostPadding || adjustment >= window.stride) {
    return false;
  }
  const std::uint64_t covered = window.stride * (size - 1) + adjustment + window.reach();
  const std::uint64_t padding = window.before + window.after;
  if (covered <= padding || covered - padding > kMostPadding) {
    return false;
  }
  *count = static_cast<std::size_t>(covered - padding);
  return true;
}

namespace {

constexpr XnnType kXnnTypes[] = {
    {xnn::XNNDatatype::xnn_datatype_fp32, xnn_datatype_fp32, 32, "fp32", "f32"},
    {xnn::XNNDatatype::xnn_datatype_fp16, xnn_datatype_fp16, 16, "fp16", "f16"},
    {xnn::XNNDatatype::xnn_datatype_qint8, xnn_datatype_qint8, 8, "qint8", "qs8"},
    {xnn::XNNDatatype::xnn_datatype_quint8, xnn_datatype_quint8, 8, "quint8", "qu8"},
    {xnn::XNNDatatype::xnn_datatype_qint32, xnn_datatype_qint32, 32, "qint32", "qint32"},
    {xnn::XNNDatatype::xnn_datatype_qcint8, xnn_datatype_qcint8, 8, "qcint8", "qc8w"},
    {xnn::XNNDatatype::xnn_datatype_qcint32, xnn_datatype_qcint32, 32, "qcint32", "qcint32"},
    {xnn::XNNDatatype::xnn_datatype_qcint4, xnn_datatype_qcint4, 4, "qcint4", "qc4w"},
    {xnn::XNNDatatype::xnn_datatype_qdint8, xnn_datatype_qdint8, 8, "qdint8", "qd8"},
    {xnn::XNNDatatype::xnn_datatype_qbint4, xnn_datatype_qbint4, 4, "qbint4", "qb4w"},
    {xnn::XNNDatatype::xnn_datatype_int32, xnn_datatype_int32, 32, "int32", "int32"},
    {xnn::XNNDatatype::xnn_datatype_bf16, xnn_datatype_bf16, 16, "bf16", "bf16"},
};

}  // namespace

const XnnType* find_type(xnn_datatype type) {
  const auto* found = std::find_if(std::begin(kXnnTypes), std::end(kXnnTypes),
                                   [type](const XnnType& row) { return row.type == type; });
  return found == std::end(kXnnTypes) ? nullptr : found;
}

xnn_datatype to_xnn(xnn::XNNDatatype datatype) {
  const auto* found = std::find_if(std::begin(kXnnTypes), std::end(kXnnTypes),
                                   [datatype](const XnnType& row) { return row.exported == datatype; });
  return found == std::end(kXnnTypes) ? xnn_datatype_invalid : found->type;
}

const char* name_of(xnn_datatype type) {
  const XnnType* row = find_type(type);
  return row == nullptr ? "of an unknown type" : row->name;
}

bool operator==(const Dims& one, const Dims& other) {
  return one.rank == other.rank &&
         std::equal(one.size.begin(), one.size.begin() + one.rank, other.size.begin());
}

std::string shape_text(const Dims& dims) {
  std::string text = dims.rank == 0 ? "scalar" : "";
  for (std::size_t i = 0; i < dims.rank; ++i) {
    text += (i == 0 ? "" : "x") + std::to_string(dims[i]);
  }
  return text;
}

bool count_between(const Dims& dims, std::size_t first, std::size_t end, std::size_t* count) {
  *count = 1;
  bool empty = false;
  for (std::size_t i = first; i < end; ++i) {
    if (dims[i] == 0) {
      empty = true;
    } else if (*count > kMostBytes / dims[i]) {
      return false;
    } else {
      *count *= dims[i];
    }
  }
  *count = empty ? 0 : *count;
  return true;
}

std::size_t bits_of(xnn_datatype datatype) {
  const XnnType* row = find_type(datatype);
  return row == nullptr ? 0 : row->bits;
}

bool count_bytes(const Dims& dims, xnn_datatype datatype, std::size_t* bytes) {
  std::size_t count = 0;
  const std::size_t bits = bits_of(datatype);
  if (!count_all(dims, &count)) {
    return false;
  }
  if (bits == 4) {
    const std::size_t last = dims.rank == 0 ? 1 : dims.last();
    *bytes = last == 0 ? 0 : count / last * (last / 2 + last % 2);
    return true;
  }
  if (count > kMostBytes / 4) {
    return false;
  }
  *bytes = count * (bits / 8);
  return true;
}

}  // namespace slipway::lean
