// Advanced indexing: several dimensions looked up at once.
#include <algorithm>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// Advanced indexing: some dimensions are looked up by tensors that broadcast together, the others are taken
// whole.
struct Lookup {
  Shape shape;  // of the result
  // One a looked-up dimension, row-major over `common`: how far each entry lies from the first, in elements.
  std::vector<std::vector<std::int64_t>> tables;
  std::vector<std::size_t> dims;  // the looked-up dimensions
  Shape common;                   // what the index tensors broadcast to
  std::size_t common_at = 0;      // where `common` stands in the result

  // The result's shape; then, when there is room for one of that shape, the tables.
  Status prepare(const TensorView& in, const std::vector<TensorView*>& indices);
  Status look_up(const TensorView& in);
  // Calls f(offset in `in`, row-major number in the result) for every element of the result.
  template <typename F>
  Status each(const TensorView& in, F f) const;
  // Moves the elements that lie at `looked_up` in in's memory order to `result`, which has these steps, or
  // back.
  void move(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps,
            std::uint8_t* looked_up, std::uint8_t* result, bool into_result) const;

 private:
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
    dims.push_back(i);
    const std::size_t rank = std::max(common.size(), shapes_[i].size());
    common.insert(common.begin(), rank - common.size(), 1);
    for (std::size_t d = 0; d < shapes_[i].size(); ++d) {
      std::int64_t& size = common[rank - shapes_[i].size() + d];
      const std::int64_t own = shapes_[i][d];
      if (size != own && size != 1 && own != 1) {
        return mismatch("indices of different shapes do not go together");
      }
      size = size == 1 ? own : size;
    }
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

Status Lookup::look_up(const TensorView& in) {
  std::size_t total = 0;
  std::size_t results = 0;
  // Small tensors of indices broadcast to more than any memory holds.
  if (!count_elements(common, sizeof(std::int64_t), &total) || !count_elements(shape, 1, &results)) {
    return mismatch("the result of indexing has the impossible size " + to_text(shape));
  }
  if (results == 0) {
    return {};  // nothing is looked up
  }
  SLIPWAY_RETURN_IF_ERROR(
      check_room(std::uint64_t{total} * sizeof(std::int64_t) * (dims.size() + 1), "what is looked up"));
  const auto strides = in.strides();
  for (const std::size_t dim : dims) {
    std::array<std::int64_t, kMostDims> steps{};
    std::int64_t step = 1;
    for (std::size_t d = shapes_[dim].size(); d-- > 0;) {
      steps[common.size() - shapes_[dim].size() + d] = shapes_[dim][d] == 1 ? 0 : step;
      step *= shapes_[dim][d];
    }
    std::vector<std::int64_t> table;
    if (shapes_[dim] == common) {
      table = std::move(lists_[dim]);
    } else {
      table.resize(total);
      Steps<1> walk(common, {&steps});
      for (std::int64_t& entry : table) {
        entry = lists_[dim][static_cast<std::size_t>(walk.offsets[0])];
        walk.next();
      }
    }
    const std::int64_t size = in.sizes[dim];
    const auto outside = [size](std::int64_t entry) { return entry < -size || entry >= size; };
    // All of them before any is used, and without a branch for each.
    bool wrong = false;
    for (const std::int64_t entry : table) {
      wrong |= outside(entry);
    }
    if (wrong) {
      const std::int64_t entry = *std::find_if(table.begin(), table.end(), outside);
      return mismatch("index " + std::to_string(entry < 0 ? entry + size : entry) + " is outside dimension " +
                      std::to_string(dim) + " of " + to_text(in.shape()));
    }
    const std::int64_t stride = strides[dim];
    for (std::int64_t& entry : table) {
      entry = (entry < 0 ? entry + size : entry) * stride;
    }
    tables.push_back(std::move(table));
  }
  return {};
}

template <typename F>
Status Lookup::each(const TensorView& in, F f) const {
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
  std::size_t total = 0;  // look_up has counted them, too
  static_cast<void>(count_elements(shape, 1, &total));
  for (std::size_t i = 0; i < total; ++i) {
    std::int64_t offset = offset_of(i, shape, steps);
    const auto entry = static_cast<std::size_t>(offset_of(i, shape, common_steps));
    for (std::size_t k = 0; k < dims.size(); ++k) {
      offset += tables[k][entry];
    }
    f(offset, i);
  }
  return {};
}

void Lookup::move(const TensorView& in, const std::array<std::int64_t, kMostDims>& result_steps,
                  std::uint8_t* looked_up, std::uint8_t* result, bool into_result) const {
  const auto strides = in.strides();
  const std::size_t size = size_of(in.dtype);
  const auto bytes = static_cast<std::int64_t>(size);
  // Where each entry of all tables lies: one table says it itself.
  std::vector<std::int64_t> sums(tables.empty() ? 1 : tables.size() == 1 ? 0 : tables[0].size());
  for (const std::vector<std::int64_t>& table : tables) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += table[i];
    }
  }
  const std::vector<std::int64_t>& places = tables.size() == 1 ? tables[0] : sums;
  std::array<std::int64_t, kMostDims> common_steps{};
  for (std::size_t d = 0; d < common.size(); ++d) {
    common_steps[d] = result_steps[common_at + d];
  }
  // The dimensions that are taken whole, before and behind the tables' ones.
  Shape before;
  std::array<std::int64_t, kMostDims> before_in{};
  std::array<std::int64_t, kMostDims> before_result{};
  Move behind;
  bool single = true;
  for (std::size_t i = 0, at_dim = 0; i < in.rank; ++i) {
    if (std::find(dims.begin(), dims.end(), i) != dims.end()) {
      continue;
    }
    if (at_dim < common_at) {
      before_in[before.size()] = strides[i];
      before_result[before.size()] = result_steps[at_dim];
      before.push_back(in.sizes[i]);
    } else {
      const std::int64_t step = result_steps[at_dim + common.size()];
      behind.add(in.sizes[i], into_result ? step : strides[i], into_result ? strides[i] : step);
      single = single && in.sizes[i] == 1;
    }
    ++at_dim;
  }
  behind.prepare(size);
  std::size_t lines = 1;  // look_up has counted more
  for (const std::int64_t length : before) {
    lines *= static_cast<std::size_t>(length);
  }
  Steps<2> outer(before, {&before_in, &before_result});
  // Neighbours in the tables are neighbours in the result: single elements, and runs, need no steps.
  const auto run = static_cast<std::int64_t>(single ? size : behind.bytes_together());
  std::int64_t row = run / bytes;
  bool straight = into_result && run != 0;
  for (std::size_t d = common.size(); d-- > 0;) {
    straight = straight && (common[d] == 1 || common_steps[d] == row);
    row *= common[d];
  }
  const std::size_t together = straight && !single ? static_cast<std::size_t>(run) : 0;
  for (std::size_t line = 0; line < lines; ++line) {
    std::uint8_t* source = looked_up + outer.offsets[0] * bytes;
    std::uint8_t* target = result + outer.offsets[1] * bytes;
    if (together != 0) {
      pick_runs(together, source, places.data(), bytes, places.size(), target);
    } else if (straight) {
      pick(size, source, places.data(), places.size(), target);
    } else {
      Steps<1> walk(common, {&common_steps});
      for (const std::int64_t place : places) {
        std::uint8_t* there = source + place * bytes;
        std::uint8_t* here = target + walk.offsets[0] * bytes;
        behind.run(into_result ? here : there, into_result ? there : here);
        walk.next();
      }
    }
    outer.next();
  }
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
bool index_one(const TensorView& in, const std::vector<TensorView*>& indices, TensorView& out) {
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
  bool inside = true;
  for (std::int64_t& place : places) {
    place += place < 0 ? size : 0;
    inside &= place >= 0 && place < size;
  }
  if (inside) {
    const std::size_t element = size_of(in.dtype);
    const std::size_t run = static_cast<std::size_t>(in.strides()[dim]) * element;
    const std::size_t line = static_cast<std::size_t>(size) * run;
    pick_in_lines(element, run, line, in.bytes() / line, in.data, places, out.data);
  }
  return inside;
}

Status index(const TensorView& in, const std::vector<TensorView*>& indices, TensorView& out) {
  if (index_one(in, indices, out)) {
    return {};
  }
  Lookup lookup;
  SLIPWAY_RETURN_IF_ERROR(in.dtype == out.dtype ? lookup.prepare(in, indices)
                                                : mismatch("the result of indexing is of another type"));
  SLIPWAY_RETURN_IF_ERROR(resize(&out, lookup.shape));
  SLIPWAY_RETURN_IF_ERROR(lookup.look_up(in));
  if (out.count() != 0) {
    lookup.move(in, out.strides(), in.data, out.data, true);
  }
  return {};
}

Status put_into(TensorView& target, const std::vector<TensorView*>& indices, const TensorView& values,
                bool accumulate) {
  Lookup lookup;
  SLIPWAY_RETURN_IF_ERROR(lookup.prepare(target, indices));
  const TensorView result = shaped(lookup.shape);
  Shape shape;
  const Status fits = broadcast_shape(values, result, &shape);
  if (!fits.ok() || shape != lookup.shape) {
    return fits.ok() ? mismatch(to_text(values.shape()) + " does not go into " + to_text(lookup.shape))
                     : fits;
  }
  SLIPWAY_RETURN_IF_ERROR(lookup.look_up(target));
  const Operand source = operand_of(values, result);
  if (!accumulate && values.dtype == target.dtype) {
    if (result.count() != 0) {
      lookup.move(target, source.steps, target.data, values.data, false);
    }
    return {};
  }
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

Status index_put(const TensorView& self, const std::vector<TensorView*>& indices, const TensorView& values,
                 bool accumulate, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, self.shape()));
  copy(out, whole(self));
  return put_into(out, indices, values, accumulate);
}
Status index_put_in_place(TensorView& self, const std::vector<TensorView*>& indices, const TensorView& values,
                          bool accumulate) {
  SLIPWAY_RETURN_IF_ERROR(resize(&self, self.shape()));
  return put_into(self, indices, values, accumulate);
}

constexpr KernelEntry kIndexingTable[] = {
    {"aten::index.Tensor_out", typed<index>},
    {"aten::index_put.out", typed<index_put>, Sharing::kFirst},
    {"aten::index_put_", typed<index_put_in_place>, Sharing::kSelf},
};

}  // namespace

const KernelTable kIndexingKernels = kIndexingTable;

}  // namespace slipway::lean
