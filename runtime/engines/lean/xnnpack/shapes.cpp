#include "lean/xnnpack/shapes.h"

#include <algorithm>

namespace slipway::lean {

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
  switch (datatype) {
    case xnn_datatype_fp32:
    case xnn_datatype_int32:
    case xnn_datatype_qint32:
    case xnn_datatype_qcint32:
      return 32;
    case xnn_datatype_fp16:
    case xnn_datatype_bf16:
      return 16;
    case xnn_datatype_qint8:
    case xnn_datatype_quint8:
    case xnn_datatype_qcint8:
    case xnn_datatype_qdint8:
      return 8;
    case xnn_datatype_qcint4:
    case xnn_datatype_qbint4:
      return 4;
    default:
      return 0;
  }
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
