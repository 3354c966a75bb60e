// Operators that move elements and compute nothing.
#include <cstring>

#include "tables.h"

namespace slipway::lean {
namespace {

// Copies with another shape: the elements keep their row-major order.
Status reshape_copy(Arguments& arguments, const Shape& shape, std::size_t out_at) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(out_at);
  if (!arguments.fault().ok()) {
    return {};
  }
  Shape wanted = shape;
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& size : wanted) {
    if (size == -1 && open == nullptr) {
      open = &size;
    } else {
      known *= size;
    }
  }
  if (open != nullptr) {
    *open = known == 0 ? 0 : static_cast<std::int64_t>(in.count()) / known;
  }
  const Status resized = resize(&out, wanted);
  if (!resized.ok()) {
    return resized;
  }
  if (out.count() != in.count() || out.dtype != in.dtype) {
    return {Code::kExecution, "cannot view " + to_text(in.shape()) + " as " + to_text(wanted),
            "check the inputs' shapes against what the program was exported with"};
  }
  if (out.data != in.data) {
    std::memcpy(out.data, in.data, in.bytes());
  }
  return {};
}

// aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out)
Status view_copy(Arguments& arguments) {
  return reshape_copy(arguments, arguments.integers(1), 2);
}

constexpr KernelEntry kTable[] = {
    {"aten::view_copy.out", view_copy},
};

}  // namespace

const KernelEntry* movement_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
