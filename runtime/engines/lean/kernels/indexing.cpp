// Indexing: one dimension looked up, or several at once.
#include <algorithm>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// Advanced indexing: tensors that broadcast together look up some dimensions, the others are taken whole.
struct Lookup {
  Shape shape;                       // of the result
  Shape common;                      // what the index tensors broadcast to
  std::vector<std::int64_t> places;  // of what is looked up, row-major over `common`, in bytes
  std::size_t common_at = 0;         // where `common` stands in the result

  // The result's shape; then, when there is room for one of that shape, the places. Negative indices count
  // from a dimension's end or are refused.
  Status prepare(const TensorView& in, const std::vector<TensorView*>& indices);
  Status look_up(const TensorView& in, bool from_end);
  // Calls f(offset in `in` in bytes, offset in the result in elements) for every element.
  template <typename F>
  void each(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps, F f) const;
  // Moves the elements that lie at `looked_up` in in's memory order to `result`, or back.
  void move(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps,
            std::uint8_t* looked_up, std::uint8_t* result, bool into_result) const;

 private:
  // The dimensions that are taken whole, before and behind the looked-up ones; steps in `in`, in the result.
  struct Around {
    Axes before;
    Axes behind;
  };
  Around around(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps) const;
  bool looks_up(std::size_t dim) const { return std::find(dims_.begin(), dims_.end(), dim) != dims_.end(); }

  std::vector<std::size_t> dims_;                 // the looked-up dimensions
  std::vector<std::vector<std::int64_t>> lists_;  // one a dimension: the indices as they were given
  std::vector<Shape> shapes_;                     // of these; {-1} where there are none
};

// Index tensors of bool stand for the indices of their true elements, one table a dimension.
Status expand_masks(const TensorView& in, const std::vector<TensorView*>& indices,
                    std::vector<std::vector<std::int64_t>>* lists, std::vector<Shape>* shapes) {
  for (const TensorView* view : indices) {
    if (view == nullptr) {
      lists->emplace_back();
      shapes->push_back({-1});
      continue;
    }
    if (view->dtype != DType::kBool) {
      lists->push_back(elements_of<std::int64_t>(*view));
      shapes->push_back(view->shape());
      continue;
    }
    const std::size_t first = lists->size();
    SLIPWAY_RETURN_IF_ERROR(
        check_room(std::uint64_t{view->count()} * sizeof(std::int64_t) * (view->rank + 1U),
                   "the places where a mask is true"));
    const std::vector<std::int64_t> mask = elements_of<std::int64_t>(*view);
    std::vector<std::vector<std::int64_t>> positions(view->rank);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      std::size_t rest = mask[i] != 0 ? i : SIZE_MAX;
      for (std::size_t d = view->rank; rest != SIZE_MAX && d-- > 0;) {
        const auto size = static_cast<std::size_t>(view->sizes[d]);
        positions[d].push_back(static_cast<std::int64_t>(rest % size));
        rest /= size;
      }
    }
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (first + d >= in.rank || view->sizes[d] != in.sizes[first + d]) {
        return mismatch("a mask of " + to_text(view->shape()) + " does not fit " + to_text(in.shape()));
      }
      shapes->push_back({static_cast<std::int64_t>(positions[d].size())});
      lists->push_back(std::move(positions[d]));
    }
  }
  return {};
}

Status Lookup::prepare(const TensorView& in, const std::vector<TensorView*>& indices) {
  const Status expanded = expand_masks(in, indices, &lists_, &shapes_);
  if (!expanded.ok() || lists_.size() > in.rank) {
    return expanded.ok() ? mismatch("there are more indices than dimensions") : expanded;
  }
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    if (shapes_[i] == Shape{-1}) {
      continue;
    }
    dims_.push_back(i);
    const TensorView before = shaped(common);
    const TensorView own = shaped(shapes_[i]);
    SLIPWAY_TRY(common, broadcast_shape({&before, &own}));
  }
  // Neighbouring dimensions are replaced where they stand; scattered ones come first.
  const bool together = dims_.empty() || dims_.back() - dims_.front() + 1 == dims_.size();
  common_at = together && !dims_.empty() ? dims_.front() : 0;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (!looks_up(i)) {
      shape.push_back(in.sizes[i]);
    }
  }
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(common_at), common.begin(), common.end());
  return shape.size() > kMostDims ? mismatch("the result of indexing has too many dimensions") : Status();
}

Status Lookup::look_up(const TensorView& in, bool from_end) {
  std::size_t total = 0;
  std::size_t results = 0;
  // Small tensors of indices broadcast to more than any memory holds.
  if (!count_elements(common, sizeof(std::int64_t), &total) || !count_elements(shape, 1, &results)) {
    return mismatch("the result of indexing has the impossible size " + to_text(shape));
  }
  if (results == 0) {
    return {};  // nothing is looked up
  }
  SLIPWAY_RETURN_IF_ERROR(check_room(std::uint64_t{total} * sizeof(std::int64_t), "what is looked up"));
  const auto strides = in.strides();
  const auto bytes = static_cast<std::int64_t>(size_of(in.dtype));
  places.resize(total);
  for (const std::size_t dim : dims_) {
    const auto steps = operand_of(shaped(shapes_[dim]), shaped(common)).steps;
    const std::int64_t size = in.sizes[dim];
    Axes axes(common, {steps.data()});
    axes.merge();
    Walk<1> walk(axes);
    for (std::int64_t& place : places) {
      std::int64_t entry = lists_[dim][static_cast<std::size_t>(walk.offsets[0])];
      entry += entry < 0 && from_end ? size : 0;
      if (entry < 0 || entry >= size) {
        return mismatch("index " + std::to_string(entry) + " is outside dimension " + std::to_string(dim) +
                        " of " + to_text(in.shape()));
      }
      place += entry * strides[dim] * bytes;
      walk.next();
    }
  }
  return {};
}

Lookup::Around Lookup::around(const TensorView& in,
                              const std::array<std::int64_t, kMostDims>& result_steps) const {
  const auto strides = in.strides();
  Around found;
  for (std::size_t i = 0, at_dim = 0; i < in.rank; ++i) {
    if (looks_up(i)) {
      continue;
    }
    const bool behind = at_dim >= common_at;
    (behind ? found.behind : found.before)
        .add(in.sizes[i], {strides[i], result_steps[at_dim + (behind ? common.size() : 0)]});
    ++at_dim;
  }
  return found;
}

template <typename F>
void Lookup::each(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps, F f) const {
  const Around rest = around(in, result_steps);
  const Axes entries(common, {result_steps.data() + common_at});
  if (rest.before.empty || rest.behind.empty || entries.empty) {
    return;
  }
  const auto bytes = static_cast<std::int64_t>(size_of(in.dtype));
  Walk<2> line(rest.before);
  do {
    Walk<1> entry(entries);
    for (const std::int64_t place : places) {
      Walk<2> behind(rest.behind);
      do {
        f((line.offsets[0] + behind.offsets[0]) * bytes + place,
          line.offsets[1] + entry.offsets[0] + behind.offsets[1]);
      } while (behind.next());
      entry.next();
    }
  } while (line.next());
}

void Lookup::move(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps,
                  std::uint8_t* looked_up, std::uint8_t* result, bool into_result) const {
  const std::size_t size = size_of(in.dtype);
  const auto bytes = static_cast<std::int64_t>(size);
  const Around rest = around(in, result_steps);
  Move behind;
  for (std::size_t i = 0; i < rest.behind.rank; ++i) {
    const Axis& axis = rest.behind.items[i];
    behind.add(axis.size, axis.steps[into_result ? 1 : 0], axis.steps[into_result ? 0 : 1]);
  }
  behind.prepare(size);
  // Neighbours in the table are neighbours in the result: single elements, and runs, need no steps.
  const std::size_t run = behind.bytes_together();
  Axes entries(common, {result_steps.data() + common_at});
  entries.merge();
  const bool straight = into_result && run != 0 &&
                        (entries.rank == 0 || (entries.rank == 1 && entries.items[0].steps[0] * bytes ==
                                                                        static_cast<std::int64_t>(run)));
  Walk<2> line(rest.before);
  do {
    std::uint8_t* source = looked_up + line.offsets[0] * bytes;
    std::uint8_t* target = result + line.offsets[1] * bytes;
    if (straight) {
      pick_runs(size, run, source, places, target);
      continue;
    }
    Walk<1> entry(entries);
    for (const std::int64_t place : places) {
      std::uint8_t* there = source + place;
      std::uint8_t* here = target + entry.offsets[0] * bytes;
      behind.run(into_result ? here : there, into_result ? there : here);
      entry.next();
    }
  } while (line.next());
}

// The only dimension that is looked up, by a tensor of integers; else in's rank.
std::size_t only_dimension(const TensorView& in, const std::vector<TensorView*>& indices) {
  std::size_t found = in.rank;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] != nullptr) {
      if (found != in.rank || i >= in.rank || indices[i]->dtype == DType::kBool) {
        return in.rank;
      }
      found = i;
    }
  }
  return found;
}

// What most programs index: one dimension of elements that lie together. False where that is not so, or
// fails: Lookup does it then, or says why not.
bool index_one(const TensorView& in, const std::vector<TensorView*>& indices, bool from_end,
               TensorView& out) {
  const std::size_t dim = only_dimension(in, indices);
  if (dim == in.rank || in.dtype != out.dtype || !in.contiguous()) {
    return false;
  }
  Shape shape = indices[dim]->shape();
  if (shape.size() + in.rank - 1 > kMostDims) {
    return false;
  }
  shape.insert(shape.begin(), in.sizes.begin(), in.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  shape.insert(shape.end(), in.sizes.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
               in.sizes.begin() + in.rank);
  if (!resize(&out, shape).ok() || !out.contiguous() || out.count() == 0) {
    return false;
  }
  // A copy: what is checked stays so while the output is written.
  std::vector<std::int64_t> places = elements_of<std::int64_t>(*indices[dim]);
  const std::int64_t size = in.sizes[dim];
  const std::size_t run = static_cast<std::size_t>(in.strides()[dim]) * size_of(in.dtype);
  bool inside = true;
  for (std::int64_t& place : places) {
    place += place < 0 && from_end ? size : 0;
    inside &= place >= 0 && place < size;
    place *= static_cast<std::int64_t>(run);
  }
  const std::size_t line = static_cast<std::size_t>(size) * run;
  for (std::size_t i = 0; inside && i < in.bytes() / line; ++i) {
    pick_runs(size_of(in.dtype), run, in.data + i * line, places, out.data + i * places.size() * run);
  }
  return inside;
}

Status look_up(const TensorView& in, const std::vector<TensorView*>& indices, bool from_end,
               TensorView& out) {
  if (index_one(in, indices, from_end, out)) {
    return {};
  }
  Lookup lookup;
  SLIPWAY_RETURN_IF_ERROR(in.dtype == out.dtype ? lookup.prepare(in, indices)
                                                : mismatch("the result of indexing is of another type"));
  SLIPWAY_RETURN_IF_ERROR(resize(&out, lookup.shape));
  SLIPWAY_RETURN_IF_ERROR(lookup.look_up(in, from_end));
  if (out.count() != 0) {
    lookup.move(in, out.strides(), in.data, out.data, true);
  }
  return {};
}

Status index(const TensorView& in, const std::vector<TensorView*>& indices, TensorView& out) {
  return look_up(in, indices, true, out);
}

// Along one dimension, by indices that are not counted from its end.
Status select_along(const TensorView& in, std::size_t dim, TensorView& places, TensorView& out) {
  std::vector<TensorView*> indices(dim + 1);
  indices[dim] = &places;
  return look_up(in, indices, false, out);
}

Status index_select(const TensorView& in, Dim dim, TensorView& places, TensorView& out) {
  if (places.rank != 0) {
    return select_along(in, dim.at, places, out);
  }
  TensorView list = places;  // one number is a list of one
  list.rank = 1;
  list.sizes[0] = 1;
  return select_along(in, dim.at, list, out);
}

Status embedding(const TensorView& weight, TensorView& indices, Unused /*padding_idx*/,
                 Unused /*scale_grad_by_freq*/, Unused /*sparse*/, TensorView& out) {
  return weight.rank == 2 ? select_along(weight, 0, indices, out)
                          : mismatch("a table of embeddings has the shape " + to_text(weight.shape()));
}

Status put_into(TensorView& target, const std::vector<TensorView*>& indices, const TensorView& values,
                bool accumulate) {
  Lookup lookup;
  SLIPWAY_RETURN_IF_ERROR(lookup.prepare(target, indices));
  const TensorView result = shaped(lookup.shape);
  SLIPWAY_RETURN_IF_ERROR(goes_into(values, lookup.shape));
  SLIPWAY_RETURN_IF_ERROR(lookup.look_up(target, true));
  const Operand source = operand_of(values, result);
  if (!accumulate && values.dtype == target.dtype) {
    if (result.count() != 0) {
      lookup.move(target, source.steps, target.data, values.data, false);
    }
    return {};
  }
  return in_domain(domain_of(target.dtype), [&](auto zero) {
    using T = decltype(zero);
    lookup.each(target, source.steps, [&](std::int64_t offset, std::int64_t from) {
      T value = load_one<T>(values.dtype, at(values, from));
      if (accumulate) {
        value += load_one<T>(target.dtype, target.data + offset);
      }
      store(target.dtype, &value, 1, target.data + offset, 1);
    });
    return Status();
  });
}

Status index_put(const TensorView& self, const std::vector<TensorView*>& indices, const TensorView& values,
                 bool accumulate, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(copy_as(out, self.shape(), whole(self)));
  return put_into(out, indices, values, accumulate);
}
Status index_put_in_place(TensorView& self, const std::vector<TensorView*>& indices, const TensorView& values,
                          bool accumulate) {
  SLIPWAY_RETURN_IF_ERROR(resize(&self, self));
  return put_into(self, indices, values, accumulate);
}

}  // namespace

constexpr KernelTable kIndexingKernels = {
    {"aten::embedding.out", typed<embedding>},
    {"aten::index.Tensor_out", typed<index>},
    {"aten::index_select.out", typed<index_select>},
    {"aten::index_put.out", typed<index_put>, Sharing::kFirst},
    {"aten::index_put_", typed<index_put_in_place>, Sharing::kSelf},
};

}  // namespace slipway::lean
