// Elements chosen by their values: as many as there are, or in order.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "device_memory.h"
#include "lean/kernels/offsets.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// aten::nonzero.out(Tensor self, *, Tensor(a!) out): as many rows as there are elements that are not 0.
Status nonzero(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(1);
  if (!arguments.fault().ok()) {
    return {};
  }
  const Shape shape = in.shape();
  const auto steps = in.strides();
  const std::size_t count = in.count();
  const auto holds = [&](std::size_t i) {
    double value = 0;
    load(in.dtype, at(in, offset_of(i, shape, steps)), 1, 1, &value);
    return value != 0;
  };
  // Counted before they are written down: as many as the output has room for.
  std::int64_t rows = 0;
  for (std::size_t i = 0; in.rank != 0 && i < count; ++i) {
    rows += holds(i) ? 1 : 0;
  }
  const Status resized = resize(&out, Shape{rows, in.rank});
  if (!resized.ok()) {
    return resized;
  }
  std::vector<std::int64_t> places(out.count());
  std::size_t end = 0;
  for (std::size_t i = 0; i < count && end < places.size(); ++i) {
    if (!holds(i)) {
      continue;
    }
    std::size_t rest = i;
    for (std::size_t d = in.rank; d-- > 0;) {
      places[end + d] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(shape[d]));
      rest /= static_cast<std::size_t>(shape[d]);
    }
    end += in.rank;
  }
  if (!places.empty()) {
    // The exporter may have planned the table a column at a time, as ATen makes it.
    copy(out, operand_of(straightened(out, places.data()), out));
  }
  return {};
}

// aten::masked_select.out(Tensor self, Tensor mask, *, Tensor(a!) out): the elements whose mask is true,
// broadcast together, in row-major order.
Status masked_select(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& mask = arguments.tensor(1);
  View& out = arguments.tensor(2);
  if (!arguments.fault().ok()) {
    return {};
  }
  View both;
  Shape shape;
  const Status fits = broadcast_shape(in, mask, &shape);
  if (!fits.ok() || in.dtype != out.dtype || mask.dtype != DType::kBool) {
    return fits.ok() ? mismatch("a mask or the result has the wrong type") : fits;
  }
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  const Operand elements = operand_of(in, both);
  const Operand flags = operand_of(mask, both);
  const auto holds = [&](std::size_t i) { return *at(mask, offset_of(i, shape, flags.steps)) != 0; };
  // Small tensors broadcast to more than any memory holds.
  std::size_t count = 0;
  Status done = count_elements(shape, 1, &count) ? check_room(count, "what a mask selects from")
                                                 : mismatch("a mask of impossible size: " + to_text(shape));
  if (!done.ok()) {
    return done;
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    total += holds(i) ? 1 : 0;
  }
  done = resize(&out, Shape{total});
  if (!done.ok()) {
    return done;
  }
  std::vector<std::int64_t> chosen;
  chosen.reserve(out.count());
  for (std::size_t i = 0; i < count && chosen.size() < out.count(); ++i) {
    if (holds(i)) {
      chosen.push_back(offset_of(i, shape, elements.steps));
    }
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::memcpy(at(out, static_cast<std::int64_t>(i)), at(in, chosen[i]), size_of(in.dtype));
  }
  return {};
}

// aten::masked_scatter.out(Tensor self, Tensor mask, Tensor source, *, Tensor(a!) out): where the mask is
// true, one element of source after the other.
Status masked_scatter(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& mask = arguments.tensor(1);
  const View& source = arguments.tensor(2);
  View& out = arguments.tensor(3);
  if (!arguments.fault().ok()) {
    return {};
  }
  Shape shape;
  Status done = broadcast_shape(in, mask, &shape);
  if (done.ok() && (in.dtype != out.dtype || source.dtype != out.dtype || mask.dtype != DType::kBool)) {
    done = mismatch("a mask or what is put in has the wrong type");
  }
  if (done.ok()) {
    done = resize(&out, shape);
  }
  if (!done.ok()) {
    return done;
  }
  copy(out, operand_of(in, out));
  const Operand flags = operand_of(mask, out);
  const auto out_steps = out.strides();
  const auto source_steps = source.strides();
  const Shape source_shape = source.shape();
  std::size_t taken = 0;
  for (std::size_t i = 0, count = out.count(), most = source.count(); i < count; ++i) {
    if (*at(mask, offset_of(i, shape, flags.steps)) == 0) {
      continue;
    }
    if (taken == most) {
      return mismatch("the mask has more places than " + to_text(source_shape) + " has elements");
    }
    std::memcpy(at(out, offset_of(i, shape, out_steps)),
                at(source, offset_of(taken++, source_shape, source_steps)), size_of(out.dtype));
  }
  return {};
}

// The order of a line's elements: the largest (or smallest) first, NaN as the largest, equals as they came.
template <typename T>
std::vector<std::size_t> order_of(const T* line, std::size_t count, bool largest) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto above = [line](std::size_t a, std::size_t b) {
    const bool a_nan = line[a] != line[a];
    const bool b_nan = line[b] != line[b];
    return a_nan || b_nan ? a_nan && !b_nan : line[a] > line[b];
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool before = largest ? above(a, b) : above(b, a);
    const bool after = largest ? above(b, a) : above(a, b);
    return before || (!after && a < b);
  });
  return order;
}

// The first `count` of every line, sorted, with where they were.
Status sorted(const View& in, std::int64_t wanted, std::int64_t count, bool largest, View& values,
              View& indices) {
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(wanted, in.rank, &dim);
  const std::int64_t length = in.rank == 0 ? 1 : in.sizes[dim];
  if (!wrapped.ok() || count < 0 || count > length) {
    return wrapped.ok() ? mismatch("cannot take " + std::to_string(count) + " of " + to_text(in.shape()))
                        : wrapped;
  }
  Shape shape = in.shape();
  if (in.rank != 0) {
    shape[dim] = count;
  }
  for (View* view : {&values, &indices}) {
    const Status resized = resize(view, shape);
    if (!resized.ok()) {
      return resized;
    }
  }
  auto in_steps = in.strides();
  auto value_steps = values.strides();
  auto index_steps = indices.strides();
  const std::int64_t in_step = in.rank == 0 ? 1 : in_steps[dim];
  const std::int64_t value_step = in.rank == 0 ? 1 : value_steps[dim];
  const std::int64_t index_step = in.rank == 0 ? 1 : index_steps[dim];
  Shape outer = in.shape();
  if (in.rank != 0) {
    outer[dim] = 1;
  }
  if (in.count() == 0) {
    return {};
  }
  const std::size_t lines = in.count() / static_cast<std::size_t>(length);
  return in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> line(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < lines; ++i) {
      load(in.dtype, at(in, offset_of(i, outer, in_steps)), in_step, line.size(), line.data());
      const std::vector<std::size_t> order = order_of(line.data(), line.size(), largest);
      for (std::int64_t k = 0; k < count; ++k) {
        const std::size_t place = order[static_cast<std::size_t>(k)];
        const auto index_value = static_cast<std::int64_t>(place);
        store(values.dtype, &line[place], 1, at(values, offset_of(i, outer, value_steps) + k * value_step),
              1);
        store(indices.dtype, &index_value, 1, at(indices, offset_of(i, outer, index_steps) + k * index_step),
              1);
      }
    }
    return Status();
  });
}

// aten::topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!)
// values, Tensor(b!) indices)
Status topk(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& values = arguments.tensor(5);
  View& indices = arguments.tensor(6);
  return arguments.fault().ok()
             ? sorted(in, arguments.integer(2), arguments.integer(1), arguments.boolean(3), values, indices)
             : Status();
}
// aten::sort.values(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) values, Tensor(b!) indices)
Status sort(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& values = arguments.tensor(3);
  View& indices = arguments.tensor(4);
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(arguments.integer(1), in.rank, &dim);
  if (!arguments.fault().ok() || !wrapped.ok()) {
    return wrapped;
  }
  return sorted(in, arguments.integer(1), in.rank == 0 ? 1 : in.sizes[dim], arguments.boolean(2), values,
                indices);
}

constexpr KernelEntry kTable[] = {
    {"aten::masked_scatter.out", masked_scatter, 4},
    {"aten::masked_select.out", masked_select, 3},
    {"aten::nonzero.out", nonzero, 2},
    {"aten::sort.values", sort, 5},
    {"aten::topk.values", topk, 7},
};

}  // namespace

const KernelEntry* filter_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
