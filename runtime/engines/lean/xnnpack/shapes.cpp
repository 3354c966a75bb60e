#include "lean/xnnpack/shapes.h"

#include <algorithm>

namespace slipway::lean {
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
    {xnn::XNNDatatype::xnn_datatype_qpint8, xnn_datatype_qpint8, 8, nullptr, nullptr},
    {xnn::XNNDatatype::xnn_datatype_int32, xnn_datatype_int32, 32, "int32", "int32"},
    {xnn::XNNDatatype::xnn_datatype_pfp32, xnn_datatype_pfp32, 32, nullptr, nullptr},
    {xnn::XNNDatatype::xnn_datatype_bf16, xnn_datatype_bf16, 16, "bf16", "bf16"},
};

template <typename Column, typename Type>
const XnnType* find_in(Column column, Type type) {
  for (const XnnType& row : kXnnTypes) {
    if (row.*column == type) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

const XnnType* find_type(xnn_datatype type) {
  return find_in(&XnnType::type, type);
}

const XnnType* find_type(xnn::XNNDatatype exported) {
  return find_in(&XnnType::exported, exported);
}

const char* name_of(xnn_datatype type) {
  const XnnType* row = find_type(type);
  return row == nullptr || row->name == nullptr ? "of an unknown type" : row->name;
}

bool operator==(const Dims& one, const Dims& other) {
  return one.rank == other.rank &&
         std::equal(one.size.begin(), one.size.begin() + one.rank, other.size.begin());
}

bool at_most(const Dims& one, const Dims& bound) {
  bool fits = one.rank == bound.rank;
  for (std::size_t i = 0; fits && i < one.rank; ++i) {
    fits = one[i] <= bound[i];
  }
  return fits;
}

Dims channels_last(const Dims& dims) {
  Dims turned = dims;
  if (dims.rank == 4) {
    std::rotate(turned.size.begin() + 1, turned.size.begin() + 2, turned.size.begin() + 4);
  }
  return turned;
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
  return row == nullptr || row->name == nullptr ? 0 : row->bits;
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
