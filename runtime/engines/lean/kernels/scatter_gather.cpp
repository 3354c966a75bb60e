// Elements looked up, or written to, by one index each.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

Status embedding(const TensorView& weight, const TensorView& indices, Unused /*padding_idx*/,
                 Unused /*scale_grad_by_freq*/, Unused /*sparse*/, TensorView& out) {
  if (weight.rank != 2 || !weight.contiguous() || weight.dtype != out.dtype || !out.contiguous()) {
    return mismatch("a table of embeddings has the shape " + to_text(weight.shape()));
  }
  Shape shape = indices.shape();
  shape.push_back(weight.sizes[1]);
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  if (out.count() == 0) {
    return {};
  }
  const std::size_t row = static_cast<std::size_t>(weight.sizes[1]) * size_of(weight.dtype);
  std::size_t done = 0;
  for (const std::int64_t index : elements_of<std::int64_t>(indices)) {
    if (index < 0 || index >= weight.sizes[0]) {
      return mismatch("index " + std::to_string(index) + " is outside the " +
                      std::to_string(weight.sizes[0]) + " embeddings");
    }
    std::memcpy(out.data + done * row, weight.data + static_cast<std::size_t>(index) * row, row);
    ++done;
  }
  return {};
}

Status index_select(const TensorView& in, std::int64_t dim_given, const TensorView& index, TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(dim_given, in.rank, &dim);
  if (!wrapped.ok() || in.dtype != out.dtype) {
    return wrapped.ok() ? mismatch("what is selected is of another type") : wrapped;
  }
  Shape shape = in.shape();
  shape[dim] = static_cast<std::int64_t>(index.count());
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  // A copy: what was checked stays so while the output is written.
  std::vector<std::int64_t> places = elements_of<std::int64_t>(index);
  for (const std::int64_t item : places) {
    if (item < 0 || item >= in.sizes[dim]) {
      return mismatch("index " + std::to_string(item) + " is outside dimension " + std::to_string(dim) +
                      " of " + to_text(in.shape()));
    }
  }
  const auto out_steps = out.strides();
  const auto in_steps = in.strides();
  const std::size_t size = size_of(out.dtype);
  if (in.contiguous() && out.contiguous()) {
    // What lies behind the dimension is copied together, in the order of the output.
    const std::size_t run = static_cast<std::size_t>(in_steps[dim]) * size;
    const std::size_t line = static_cast<std::size_t>(in.sizes[dim]) * run;
    pick_in_lines(size, run, line, in.bytes() / line, in.data, places, out.data);
    return {};
  }
  // Slices: runs as long as the dimensions behind.
  Move behind;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (i != dim) {
      behind.add(shape[i], out_steps[i], in_steps[i]);
    }
  }
  behind.prepare(size);
  if (const std::size_t bytes = behind.bytes_together(); bytes != 0) {
    const std::int64_t in_bytes = in_steps[dim] * static_cast<std::int64_t>(size);
    const std::int64_t out_bytes = out_steps[dim] * static_cast<std::int64_t>(size);
    std::uint8_t* to = out.data;
    for (const std::int64_t place : places) {
      move_bytes(to, in.data + place * in_bytes, bytes);
      to += out_bytes;
    }
    return {};
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    behind.run(at(out, static_cast<std::int64_t>(i) * out_steps[dim]), at(in, places[i] * in_steps[dim]));
  }
  return {};
}

// to[i] = the element at places[i] of line i; steps in elements.
template <typename Bits>
void gather_bits(const std::uint8_t* from, std::int64_t line_step, std::int64_t place_step,
                 const std::int64_t* places, std::size_t count, std::uint8_t* to, std::int64_t to_step) {
  const auto* elements = reinterpret_cast<const Bits*>(from);
  auto* results = reinterpret_cast<Bits*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    const auto line = static_cast<std::int64_t>(i);
    results[line * to_step] = elements[line * line_step + places[i] * place_step];
  }
}

Status gather(const TensorView& in, std::int64_t dim_given, const TensorView& index, Unused /*sparse_grad*/,
              TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(dim_given, in.rank, &dim);
  if (!wrapped.ok() || index.rank != in.rank || in.dtype != out.dtype) {
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
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const std::vector<std::int64_t> positions = elements_of<std::int64_t>(index);
  const auto out_steps = out.strides();
  auto in_steps = in.strides();
  const std::int64_t step = in_steps[dim];
  in_steps[dim] = 0;
  const std::int64_t length = in.rank == 0 ? 1 : in.sizes[dim];
  for (const std::int64_t position : positions) {
    if (position < 0 || position >= length) {
      return mismatch("index " + std::to_string(position) + " is outside " + to_text(in.shape()));
    }
  }
  if (positions.empty()) {
    return {};
  }
  // A row of the output's last dimension at a time.
  const std::size_t last = in.rank == 0 ? 0 : std::size_t{in.rank} - 1;
  const std::size_t row = in.rank == 0 ? 1 : static_cast<std::size_t>(shape[last]);
  const Shape rows = in.rank == 0 ? Shape{} : Shape(shape.begin(), shape.end() - 1);
  Steps<2> walk(rows, {&out_steps, &in_steps});
  for (std::size_t done = 0; done < positions.size(); done += row) {
    in_bits(size_of(out.dtype), [&](auto bits) {
      gather_bits<decltype(bits)>(at(in, walk.offsets[1]), in_steps[last], step, positions.data() + done, row,
                                  at(out, walk.offsets[0]), out_steps[last]);
    });
    walk.next();
  }
  return {};
}

// Writes `source` (or one number) to elements of a copy of self.
Status scatter_into(const TensorView& self, std::int64_t signed_dim, const TensorView& index,
                    const TensorView* source, const Number& number, bool add, TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = self.rank == 0 ? Status() : wrap_dim(signed_dim, self.rank, &dim);
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
  SLIPWAY_RETURN_IF_ERROR(resize(&out, self.shape()));
  if (out.data != self.data) {
    copy(out, whole(self));
  }
  const std::vector<std::int64_t> positions = elements_of<std::int64_t>(index);
  auto out_steps = out.strides();
  const std::int64_t step = out_steps[dim];
  out_steps[dim] = 0;
  const auto source_steps = source == nullptr ? out_steps : source->strides();
  const std::size_t size = size_of(out.dtype);
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    T value = number.as<T>();
    std::uint64_t converted = 0;
    store(out.dtype, &value, 1, reinterpret_cast<std::uint8_t*>(&converted), 1);
    const bool moves = !add && (source == nullptr || source->dtype == out.dtype);
    Steps<2> walk(shape, {&out_steps, &source_steps});
    for (const std::int64_t position : positions) {
      if (position < 0 || position >= (self.rank == 0 ? 1 : self.sizes[dim])) {
        return mismatch("index " + std::to_string(position) + " is outside " + to_text(self.shape()));
      }
      std::uint8_t* to = at(out, walk.offsets[0] + position * step);
      const std::uint8_t* from = source == nullptr ? reinterpret_cast<const std::uint8_t*>(&converted)
                                                   : at(*source, walk.offsets[1]);
      walk.next();
      if (moves) {
        move_bytes(to, from, size);
        continue;
      }
      load(source->dtype, from, 1, 1, &value);
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

Status scatter(const TensorView& in, std::int64_t dim, const TensorView& index, const TensorView& source,
               TensorView& out) {
  return scatter_into(in, dim, index, &source, {}, false, out);
}
Status scatter_value(const TensorView& in, std::int64_t dim, const TensorView& index, Number number,
                     TensorView& out) {
  return scatter_into(in, dim, index, nullptr, number, false, out);
}
Status scatter_add(const TensorView& in, std::int64_t dim, const TensorView& index, const TensorView& source,
                   TensorView& out) {
  return scatter_into(in, dim, index, &source, {}, true, out);
}

// Each index as often as `repeats` says.
Status repeat_interleave(const TensorView& repeats, std::optional<std::int64_t> output_size,
                         TensorView& out) {
  const std::vector<std::int64_t> times = elements_of<std::int64_t>(repeats);
  std::int64_t total = 0;
  for (const std::int64_t count : times) {
    // What has no room anyway is not added up further.
    if (repeats.rank != 1 || count < 0 || count > INT32_MAX || total > INT32_MAX) {
      return mismatch("cannot repeat " + std::to_string(count) + " times");
    }
    total += count;
  }
  if (output_size && *output_size != total) {
    return mismatch(std::to_string(total) + " repetitions where the program has " +
                    std::to_string(*output_size));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{total}));
  std::int64_t at_out = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    for (std::int64_t k = 0; k < times[i]; ++k) {
      store(out.dtype, &position, 1, at(out, at_out++), 1);
    }
  }
  return {};
}

constexpr KernelEntry kScatterGatherTable[] = {
    {"aten::embedding.out", typed<embedding>},
    {"aten::gather.out", typed<gather>},
    {"aten::index_select.out", typed<index_select>},
    {"aten::repeat_interleave.Tensor_out", typed<repeat_interleave>},
    {"aten::scatter.src_out", typed<scatter>, Sharing::kFirst},
    {"aten::scatter.value_out", typed<scatter_value>, Sharing::kFirst},
    {"aten::scatter_add.out", typed<scatter_add>, Sharing::kFirst},
};

}  // namespace

const KernelTable kScatterGatherKernels = kScatterGatherTable;

}  // namespace slipway::lean
