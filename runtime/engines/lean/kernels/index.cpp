// Operators that look elements up by index.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "reduction.h"
#include "tables.h"

namespace slipway::lean {
namespace {

// All elements as integers, in logical row-major order.
std::vector<std::int64_t> integers_of(const View& view) {
  std::vector<std::int64_t> found(view.count());
  View straight = view;
  straight.dtype = DType::kInt64;
  for (std::uint8_t i = 0; i < view.rank; ++i) {
    straight.order[i] = i;
  }
  straight.data = reinterpret_cast<std::uint8_t*>(found.data());
  if (!found.empty()) {
    copy(straight, operand_of(view, straight));
  }
  return found;
}

// Where a logical row-major number lies: its offset in elements.
std::int64_t offset_of(std::size_t number, const Shape& shape,
                       const std::array<std::int64_t, kMostDims>& steps) {
  std::int64_t offset = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[d]);
    offset += static_cast<std::int64_t>(number % size) * steps[d];
    number /= size;
  }
  return offset;
}

std::uint8_t* at(const View& view, std::int64_t offset) {
  return view.data + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

// aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False,
// bool sparse=False, *, Tensor(a!) out)
Status embedding(Arguments& arguments) {
  const View& weight = arguments.tensor(0);
  const View& indices = arguments.tensor(1);
  View& out = arguments.tensor(5);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (weight.rank != 2 || !weight.contiguous() || weight.dtype != out.dtype || !out.contiguous()) {
    return mismatch("a table of embeddings has the shape " + to_text(weight.shape()));
  }
  Shape shape = indices.shape();
  shape.push_back(weight.sizes[1]);
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const std::size_t row = static_cast<std::size_t>(weight.sizes[1]) * size_of(weight.dtype);
  std::size_t done = 0;
  for (const std::int64_t index : integers_of(indices)) {
    if (index < 0 || index >= weight.sizes[0]) {
      return mismatch("index " + std::to_string(index) + " is outside the " +
                      std::to_string(weight.sizes[0]) + " embeddings");
    }
    std::memcpy(out.data + done * row, weight.data + static_cast<std::size_t>(index) * row, row);
    ++done;
  }
  return {};
}

// aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out)
Status index_select(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& index = arguments.tensor(2);
  View& out = arguments.tensor(3);
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(1), in.rank, &dim);
  if (!wrapped.ok()) {
    return wrapped;
  }
  Shape shape = in.shape();
  shape[dim] = static_cast<std::int64_t>(index.count());
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const auto out_steps = out.strides();
  std::int64_t place = 0;
  for (const std::int64_t item : integers_of(index)) {
    if (item < 0 || item >= in.sizes[dim]) {
      return mismatch("index " + std::to_string(item) + " is outside dimension " + std::to_string(dim) +
                      " of " + to_text(in.shape()));
    }
    // One slice: a view of the output whose other dimensions are walked.
    Operand from = whole(in);
    from.data = at(in, item * from.steps[dim]);
    for (std::size_t i = 0,
                     outer = out.count() / std::max<std::size_t>(1, static_cast<std::size_t>(shape[dim]));
         i < outer; ++i) {
      Shape rest = shape;
      rest[dim] = 1;
      const std::int64_t to = offset_of(i, rest, out_steps) + place * out_steps[dim];
      std::memcpy(at(out, to),
                  from.data + offset_of(i, rest, from.steps) * static_cast<std::int64_t>(size_of(in.dtype)),
                  size_of(out.dtype));
    }
    ++place;
  }
  return {};
}

// aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out)
Status gather(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& index = arguments.tensor(2);
  View& out = arguments.tensor(4);
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(arguments.integer(1), in.rank, &dim);
  if (!wrapped.ok() || index.rank != in.rank) {
    return wrapped.ok()
               ? mismatch("indices of " + to_text(index.shape()) + " do not fit " + to_text(in.shape()))
               : wrapped;
  }
  const Shape shape = index.shape();
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (i != dim && shape[i] > in.sizes[i]) {
      return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(in.shape()));
    }
  }
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const std::vector<std::int64_t> places = integers_of(index);
  const auto out_steps = out.strides();
  auto in_steps = in.strides();
  const std::int64_t step = in_steps[dim];
  in_steps[dim] = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= (in.rank == 0 ? 1 : in.sizes[dim])) {
      return mismatch("index " + std::to_string(places[i]) + " is outside " + to_text(in.shape()));
    }
    std::memcpy(at(out, offset_of(i, shape, out_steps)),
                at(in, offset_of(i, shape, in_steps) + places[i] * step), size_of(out.dtype));
  }
  return {};
}

// Writes `source` (or one number) to places of a copy of self.
Status scatter_into(const View& self, std::int64_t wanted, const View& index, const View* source,
                    double number, bool add, View& out) {
  std::size_t dim = 0;
  const Status wrapped = self.rank == 0 ? Status() : wrap_dim(wanted, self.rank, &dim);
  if (!wrapped.ok() || index.rank != self.rank || (source != nullptr && source->rank != self.rank)) {
    return wrapped.ok()
               ? mismatch("indices of " + to_text(index.shape()) + " do not fit " + to_text(self.shape()))
               : wrapped;
  }
  const Shape shape = index.shape();
  for (std::size_t i = 0; i < self.rank; ++i) {
    if ((i != dim && shape[i] > self.sizes[i]) || (source != nullptr && shape[i] > source->sizes[i])) {
      return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(self.shape()));
    }
  }
  const Status resized = resize(&out, self.shape());
  if (!resized.ok()) {
    return resized;
  }
  if (out.data != self.data) {
    copy(out, whole(self));
  }
  const std::vector<std::int64_t> places = integers_of(index);
  auto out_steps = out.strides();
  const std::int64_t step = out_steps[dim];
  out_steps[dim] = 0;
  const auto source_steps = source == nullptr ? out_steps : source->strides();
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0 || places[i] >= (self.rank == 0 ? 1 : self.sizes[dim])) {
        return mismatch("index " + std::to_string(places[i]) + " is outside " + to_text(self.shape()));
      }
      std::uint8_t* to = at(out, offset_of(i, shape, out_steps) + places[i] * step);
      T value = static_cast<T>(number);
      if (source != nullptr) {
        load(source->dtype, at(*source, offset_of(i, shape, source_steps)), 1, 1, &value);
      }
      if (add) {
        T before{};
        load(out.dtype, to, 1, 1, &before);
        value += before;
      }
      store(out.dtype, &value, 1, to, 1);
    }
    return Status();
  });
}

// aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out)
Status scatter(Arguments& arguments) {
  const View& source = arguments.tensor(3);
  return scatter_into(arguments.tensor(0), arguments.integer(1), arguments.tensor(2), &source, 0, false,
                      arguments.tensor(4));
}
// aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value, *, Tensor(a!) out)
Status scatter_value(Arguments& arguments) {
  return scatter_into(arguments.tensor(0), arguments.integer(1), arguments.tensor(2), nullptr,
                      arguments.real(3), false, arguments.tensor(4));
}
// aten::scatter_add.out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out)
Status scatter_add(Arguments& arguments) {
  const View& source = arguments.tensor(3);
  return scatter_into(arguments.tensor(0), arguments.integer(1), arguments.tensor(2), &source, 0, true,
                      arguments.tensor(4));
}

// Advanced indexing: some dimensions are looked up by tensors that broadcast together, the others are taken
// whole.
struct Lookup {
  Shape shape;                                    // of the result
  std::vector<std::vector<std::int64_t>> tables;  // one a looked-up dimension: row-major over `common`
  std::vector<std::size_t> dims;                  // the looked-up dimensions
  Shape common;                                   // what the index tensors broadcast to
  std::size_t common_at = 0;                      // where `common` stands in the result

  Status prepare(const View& in, const std::vector<View*>& indices);
  // Calls f(offset in `in`, row-major number in the result) for every element of the result.
  template <typename F>
  Status each(const View& in, F f) const;
};

// Index tensors of bool stand for the places where they are true, one table a dimension.
Status expand_masks(const View& in, const std::vector<View*>& indices,
                    std::vector<std::vector<std::int64_t>>* lists, std::vector<Shape>* shapes) {
  for (const View* view : indices) {
    if (view == nullptr) {
      lists->emplace_back();
      shapes->push_back({-1});
      continue;
    }
    if (view->dtype != DType::kBool) {
      lists->push_back(integers_of(*view));
      shapes->push_back(view->shape());
      continue;
    }
    const std::vector<std::int64_t> mask = integers_of(*view);
    const std::size_t first = lists->size();
    std::vector<std::vector<std::int64_t>> places(view->rank);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      std::size_t rest = mask[i] != 0 ? i : SIZE_MAX;
      for (std::size_t d = view->rank; rest != SIZE_MAX && d-- > 0;) {
        const auto size = static_cast<std::size_t>(view->sizes[d]);
        places[d].push_back(static_cast<std::int64_t>(rest % size));
        rest /= size;
      }
    }
    for (std::size_t d = 0; d < places.size(); ++d) {
      if (first + d >= in.rank || view->sizes[d] != in.sizes[first + d]) {
        return mismatch("a mask of " + to_text(view->shape()) + " does not fit " + to_text(in.shape()));
      }
      shapes->push_back({static_cast<std::int64_t>(places[d].size())});
      lists->push_back(std::move(places[d]));
    }
  }
  return {};
}

Status Lookup::prepare(const View& in, const std::vector<View*>& indices) {
  std::vector<std::vector<std::int64_t>> lists;
  std::vector<Shape> shapes;
  const Status expanded = expand_masks(in, indices, &lists, &shapes);
  if (!expanded.ok() || lists.size() > in.rank) {
    return expanded.ok() ? mismatch("there are more indices than dimensions") : expanded;
  }
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (shapes[i] == Shape{-1}) {
      continue;
    }
    dims.push_back(i);
    const std::size_t rank = std::max(common.size(), shapes[i].size());
    common.insert(common.begin(), rank - common.size(), 1);
    for (std::size_t d = 0; d < shapes[i].size(); ++d) {
      std::int64_t& size = common[rank - shapes[i].size() + d];
      const std::int64_t own = shapes[i][d];
      if (size != own && size != 1 && own != 1) {
        return mismatch("indices of different shapes do not go together");
      }
      size = size == 1 ? own : size;
    }
  }
  std::size_t total = 1;
  for (const std::int64_t size : common) {
    total *= static_cast<std::size_t>(size);
  }
  for (const std::size_t dim : dims) {
    std::array<std::int64_t, kMostDims> steps{};
    std::int64_t step = 1;
    for (std::size_t d = shapes[dim].size(); d-- > 0;) {
      steps[common.size() - shapes[dim].size() + d] = shapes[dim][d] == 1 ? 0 : step;
      step *= shapes[dim][d];
    }
    std::vector<std::int64_t> table(total);
    for (std::size_t i = 0; i < total; ++i) {
      std::int64_t index = lists[dim][static_cast<std::size_t>(offset_of(i, common, steps))];
      index = index < 0 ? index + in.sizes[dim] : index;
      if (index < 0 || index >= in.sizes[dim]) {
        return mismatch("index " + std::to_string(index) + " is outside dimension " + std::to_string(dim) +
                        " of " + to_text(in.shape()));
      }
      table[i] = index;
    }
    tables.push_back(std::move(table));
  }
  // Neighbouring dimensions are replaced where they stand; scattered ones come first.
  const bool together = dims.empty() || dims.back() - dims.front() + 1 == dims.size();
  common_at = together && !dims.empty() ? dims.front() : 0;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) {
      shape.push_back(in.sizes[i]);
    }
  }
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(common_at), common.begin(), common.end());
  return shape.size() > kMostDims ? mismatch("the result of indexing has too many dimensions") : Status();
}

template <typename F>
Status Lookup::each(const View& in, F f) const {
  const auto strides = in.strides();
  std::array<std::int64_t, kMostDims> steps{};
  std::size_t at_dim = 0;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (std::find(dims.begin(), dims.end(), i) != dims.end()) {
      continue;
    }
    if (at_dim == common_at) {
      at_dim += common.size();
    }
    steps[at_dim++] = strides[i];
  }
  std::array<std::int64_t, kMostDims> common_steps{};
  std::int64_t step = 1;
  for (std::size_t d = common.size(); d-- > 0;) {
    common_steps[common_at + d] = step;
    step *= common[d];
  }
  std::size_t total = 1;
  for (const std::int64_t size : shape) {
    total *= static_cast<std::size_t>(size);
  }
  for (std::size_t i = 0; i < total; ++i) {
    std::int64_t offset = offset_of(i, shape, steps);
    const auto entry = static_cast<std::size_t>(offset_of(i, shape, common_steps));
    for (std::size_t k = 0; k < dims.size(); ++k) {
      offset += tables[k][entry] * strides[dims[k]];
    }
    f(offset, i);
  }
  return {};
}

// aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out)
Status index(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(2);
  Lookup lookup;
  Status done = lookup.prepare(in, arguments.tensors(1));
  if (done.ok()) {
    done = resize(&out, lookup.shape);
  }
  if (!done.ok()) {
    return done;
  }
  const auto out_steps = out.strides();
  const std::size_t size = size_of(out.dtype);
  return lookup.each(in, [&](std::int64_t offset, std::size_t number) {
    std::memcpy(at(out, offset_of(number, lookup.shape, out_steps)), at(in, offset), size);
  });
}

Status put_into(View& target, const std::vector<View*>& indices, const View& values, bool accumulate) {
  Lookup lookup;
  const Status prepared = lookup.prepare(target, indices);
  if (!prepared.ok()) {
    return prepared;
  }
  View result;
  result.rank = static_cast<std::uint8_t>(lookup.shape.size());
  std::copy(lookup.shape.begin(), lookup.shape.end(), result.sizes.begin());
  Shape shape;
  const Status fits = broadcast_shape(values, result, &shape);
  if (!fits.ok() || shape != lookup.shape) {
    return fits.ok() ? mismatch(to_text(values.shape()) + " does not go into " + to_text(lookup.shape))
                     : fits;
  }
  const Operand source = operand_of(values, result);
  return in_domain(domain_of(target.dtype), [&](auto zero) {
    using T = decltype(zero);
    return lookup.each(target, [&](std::int64_t offset, std::size_t number) {
      T value{};
      load(values.dtype, at(values, offset_of(number, lookup.shape, source.steps)), 1, 1, &value);
      if (accumulate) {
        T before{};
        load(target.dtype, at(target, offset), 1, 1, &before);
        value += before;
      }
      store(target.dtype, &value, 1, at(target, offset), 1);
    });
  });
}

// aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, *, Tensor(a!)
// out)
Status index_put(Arguments& arguments) {
  const View& self = arguments.tensor(0);
  View& out = arguments.tensor(4);
  if (!arguments.fault().ok()) {
    return {};
  }
  const Status resized = resize(&out, self.shape());
  if (!resized.ok()) {
    return resized;
  }
  copy(out, whole(self));
  return put_into(out, arguments.tensors(1), arguments.tensor(2), arguments.boolean(3));
}
// aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False)
Status index_put_in_place(Arguments& arguments) {
  View& self = arguments.tensor(0);
  return arguments.fault().ok()
             ? put_into(self, arguments.tensors(1), arguments.tensor(2), arguments.boolean(3))
             : Status();
}

// aten::nonzero.out(Tensor self, *, Tensor(a!) out): as many rows as there are elements that are not 0.
Status nonzero(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(1);
  if (!arguments.fault().ok()) {
    return {};
  }
  std::vector<std::int64_t> places;
  const Shape shape = in.shape();
  const auto steps = in.strides();
  for (std::size_t i = 0; i < in.count(); ++i) {
    double value = 0;
    load(in.dtype, at(in, offset_of(i, shape, steps)), 1, 1, &value);
    if (value == 0) {
      continue;
    }
    std::size_t rest = i;
    places.resize(places.size() + in.rank);
    for (std::size_t d = in.rank; d-- > 0;) {
      places[places.size() - in.rank + d] =
          static_cast<std::int64_t>(rest % static_cast<std::size_t>(shape[d]));
      rest /= static_cast<std::size_t>(shape[d]);
    }
  }
  const auto rows = static_cast<std::int64_t>(in.rank == 0 ? 0 : places.size() / in.rank);
  const Status resized = resize(&out, Shape{rows, in.rank});
  if (resized.ok() && !places.empty()) {
    store(out.dtype, places.data(), places.size(), out.data, 1);
  }
  return resized;
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
  std::size_t lines = in.count() == 0 ? 0 : in.count() / static_cast<std::size_t>(length);
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
    {"aten::embedding.out", embedding},
    {"aten::gather.out", gather},
    {"aten::index.Tensor_out", index},
    {"aten::index_put.out", index_put},
    {"aten::index_put_", index_put_in_place},
    {"aten::index_select.out", index_select},
    {"aten::nonzero.out", nonzero},
    {"aten::scatter.src_out", scatter},
    {"aten::scatter.value_out", scatter_value},
    {"aten::scatter_add.out", scatter_add},
    {"aten::sort.values", sort},
    {"aten::topk.values", topk},
};

}  // namespace

const KernelEntry* index_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
