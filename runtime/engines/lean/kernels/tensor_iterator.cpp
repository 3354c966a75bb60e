#include "lean/kernels/tensor_iterator.h"

#include <cstring>
#include <numeric>
#include <utility>

namespace slipway::lean {
Status mismatch(std::string what) {
  return {Code::kExecution, std::move(what),
          "check the inputs' shapes and values against what the program was exported with"};
}

Operand whole(const TensorView& in) {
  return {in.data, in.dtype, in.strides()};
}

Result<Shape> broadcast_shape(std::initializer_list<const TensorView*> views) {
  Shape shape;
  for (const TensorView* view : views) {
    if (view->rank > shape.size()) {
      shape.insert(shape.begin(), view->rank - shape.size(), 1);
    }
    for (std::size_t i = 0; i < view->rank; ++i) {
      std::int64_t& size = shape[shape.size() - view->rank + i];
      if (size != view->sizes[i] && size != 1 && view->sizes[i] != 1) {
        return mismatch(to_text(view->shape()) + " does not go together with " + to_text(shape));
      }
      size = size == 1 ? view->sizes[i] : size;
    }
  }
  return shape;
}

Status resize_to_all(std::initializer_list<const TensorView*> views, TensorView* out) {
  const TensorView& first = **views.begin();
  const auto like_first = [&first](const TensorView* view) {
    return view->has_sizes(first.sizes.data(), first.rank);
  };
  if (std::all_of(views.begin(), views.end(), like_first)) {
    return resize(out, first);
  }
  SLIPWAY_TRY(const Shape shape, broadcast_shape(views));
  return resize(out, shape);
}

Status goes_into(const TensorView& in, const Shape& shape) {
  bool fits = in.rank <= shape.size();
  for (std::size_t i = 0; fits && i < in.rank; ++i) {
    fits = in.sizes[i] == 1 || in.sizes[i] == shape[shape.size() - in.rank + i];
  }
  return fits ? Status() : mismatch(to_text(in.shape()) + " does not go into " + to_text(shape));
}

TensorView shaped(const Shape& shape) {
  TensorView view;
  view.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.sizes.begin());
  return view.in_rows(nullptr);
}

void settle_open_size(Shape* shape, std::size_t count) {
  const auto open = std::find(shape->begin(), shape->end(), -1);
  if (open != shape->end()) {
    *open = 1;
    std::size_t known = 0;
    *open = count_elements(*shape, 1, &known) && known != 0 ? static_cast<std::int64_t>(count / known) : 0;
  }
}

Operand operand_of(const TensorView& in, const TensorView& out) {
  Operand operand{in.data, in.dtype, {}};
  const auto strides = in.strides();
  for (std::size_t i = 0; i < in.rank && i < out.rank; ++i) {
    const std::size_t own = in.rank - 1U - i;
    operand.steps[out.rank - 1U - i] = in.sizes[own] == 1 ? 0 : strides[own];
  }
  return operand;
}

Target::Target(const TensorView& view) : operand(whole(view)), rank(view.rank), sizes(view.sizes.data()) {}
Target::Target(const Part& part) : operand(part.operand), rank(part.shape.size()), sizes(part.shape.data()) {}

Axes detail::axes_of(const Target& out, const Operand* operands, std::size_t count) {
  Axes axes;
  for (std::size_t d = 0; d < out.rank; ++d) {
    axes.add(out.sizes[d], {out.operand.steps[d]});
    for (std::size_t k = 0; k < count && out.sizes[d] != 1; ++k) {
      axes.items[axes.rank - 1].steps[k + 1] = operands[k].steps[d];
    }
  }
  axes.arrange();
  if (axes.rank == 0) {
    axes.items[axes.rank++] = {1, {1, 0, 0, 0}};
  }
  return axes;
}

namespace {

// How an operand goes along with short rows that are joined to long ones.
enum class Along : std::uint8_t {
  kFollows,
  kBegins,  // anew with every row
  kStays,   // where it is, in every row
};

// Joins short rows to long ones where the result follows. Returns the short rows' length, 0 if they stay as
// they are.
template <std::size_t N>
std::size_t join_rows(Axes* axes, std::array<Along, N>* along) {
  constexpr std::int64_t kShortRow = 64;
  const std::size_t rank = axes->rank;
  if (rank < 2 || axes->items[rank - 1].size > kShortRow) {
    return 0;
  }
  const Axis row = axes->items[rank - 1];
  Axis& outer = axes->items[rank - 2];
  for (std::size_t k = 0; k <= N; ++k) {
    const bool follows = outer.steps[k] == row.steps[k] * row.size;
    const bool stays = row.steps[k] == 0;
    if (!follows && (k == 0 || (outer.steps[k] != 0 && !stays))) {
      return 0;
    }
  }
  for (std::size_t k = 0; k < N; ++k) {
    const bool follows = outer.steps[k + 1] == row.steps[k + 1] * row.size;
    (*along)[k] = follows ? Along::kFollows : outer.steps[k + 1] == 0 ? Along::kBegins : Along::kStays;
  }
  outer = {outer.size * row.size, row.steps};
  axes->rank = rank - 1;
  return static_cast<std::size_t>(row.size);
}

// What a map computes in: a domain's type, or the narrow one that all operands have.
struct Computed {
  Domain domain;
  bool narrow;
  std::size_t size;

  // Whether its elements lie in memory of that type, which operands and the result of narrow ones have.
  bool has(DType dtype) const {
    return narrow ? size_of(dtype) == size
                  : dtype == (domain == Domain::kInt     ? DType::kInt64
                              : domain == Domain::kFloat ? DType::kFloat32
                                                         : DType::kFloat64);
  }
};

// The narrow type if all operands have it; of flags, bytes. The result has that type, or consists of flags.
template <std::size_t N>
Computed computed_in(DType out, const std::array<DType, N>& types, Domain domain, const Loops& loops) {
  const DType dtype = types[0];
  const std::size_t size = size_of(dtype);
  bool fits = false;
  in_narrow(dtype, [&](auto) {
    fits = domain == Domain::kInt && loops.narrow != nullptr && (dtype != DType::kBool || loops.flags) &&
           (out == dtype || out == DType::kBool);
  });
  for (const DType type : types) {
    fits = fits && (type == dtype || (loops.flags && size == 1 && size_of(type) == 1));
  }
  return {domain, fits, fits ? size : domain == Domain::kFloat ? sizeof(float) : sizeof(double)};
}

void run(const Computed& in, DType dtype, const Loops& loops, const void* context, const void* const* inputs,
         void* result, std::size_t count) {
  if (in.narrow) {
    return loops.narrow(dtype, context, inputs, result, count);
  }
  const auto call = [&](auto loop, auto zero) {
    using T = decltype(zero);
    loop(context, reinterpret_cast<const T* const*>(inputs), static_cast<T*>(result), count);
  };
  switch (in.domain) {
    case Domain::kInt:
      return call(loops.whole, std::int64_t{});
    case Domain::kFloat:
      return call(loops.single, float{});
    case Domain::kDouble:
      return call(loops.twice, double{});
  }
}

// Elements that are computed in as they lie, from `step` apart to one another, or converted.
void read(const Computed& in, const Operand& operand, const std::uint8_t* from, std::int64_t step,
          std::size_t count, void* to) {
  if (!in.narrow) {
    return in_domain(in.domain, [&](auto zero) {
      load(operand.dtype, from, step, count, static_cast<decltype(zero)*>(to));
    });
  }
  in_bits(in.size, [&](auto zero) {
    using T = decltype(zero);
    const T* own = reinterpret_cast<const T*>(from);
    T* all = static_cast<T*>(to);
    if (step == 0) {
      std::fill_n(all, count, *own);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      all[i] = own[static_cast<std::int64_t>(i) * step];
    }
  });
}

// The other way round; narrow ones may become flags.
void write(const Computed& in, const void* from, std::size_t count, DType dtype, std::uint8_t* to,
           std::int64_t step) {
  if (!in.narrow) {
    return in_domain(in.domain, [&](auto zero) {
      store(dtype, static_cast<const decltype(zero)*>(from), count, to, step);
    });
  }
  in_bits(in.size, [&](auto zero) {
    using T = decltype(zero);
    const T* own = static_cast<const T*>(from);
    const bool flags = in.size != size_of(dtype);
    if (flags && step == 1) {
      std::transform(own, own + count, to, [](T x) { return static_cast<std::uint8_t>(x != 0 ? 1 : 0); });
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t place = static_cast<std::int64_t>(i) * step;
      if (flags) {
        to[place] = own[i] != 0 ? 1 : 0;
      } else {
        reinterpret_cast<T*>(to)[place] = own[i];
      }
    }
  });
}

template <std::size_t N>
void map_in(const Target& out, const std::array<Operand, N>& operands, const Computed& in, const Loops& loops,
            const void* context) {
  // Enough for a call of the loop to take no time; and a few of them fit into the smallest first cache.
  constexpr std::size_t kBytes = kBlock * sizeof(std::int64_t);
  const std::size_t together = kBytes / std::max(in.size, sizeof(float));
  const DType dtype = out.operand.dtype;
  const auto out_size = static_cast<std::int64_t>(size_of(dtype));
  Axes axes = detail::axes_of(out, operands.data(), N);
  std::array<Along, N> along{};
  const Axis outer = axes.items[axes.rank < 2 ? 0 : axes.rank - 2];
  const std::size_t joined = join_rows(&axes, &along);
  const std::array<std::int64_t, 4> within = axes.items[axes.rank - 1].steps;
  for (std::size_t k = 0; k < N; ++k) {
    axes.items[axes.rank - 1].steps[k + 1] *= along[k] == Along::kFollows ? 1 : 0;
  }
  const std::size_t block = joined == 0 ? together : together / joined * joined;
  // A row whose operands stay for some elements is not divided.
  const bool whole_rows = std::find(along.begin(), along.end(), Along::kStays) != along.end();
  detail::share_rows(
      axes, axes.rank - (whole_rows ? 1 : 0), out, operands, block, 1,
      [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        alignas(std::max_align_t) std::uint8_t blocks[N][kBytes];
        alignas(std::max_align_t) std::uint8_t result[kBytes];
        const bool there = in.has(dtype) && to_step == 1;
        bool all = there;
        std::array<bool, N> lies{};
        const void* inputs[N];
        for (std::size_t k = 0; k < N; ++k) {
          lies[k] = in.has(operands[k].dtype) && steps[k] == 1 && along[k] == Along::kFollows;
          all = all && lies[k];
          inputs[k] = lies[k] ? from[k] : blocks[k];
          const std::size_t once = length < block ? length : block;
          if (along[k] == Along::kBegins) {
            read(in, operands[k], from[k], within[k + 1], joined, blocks[k]);
            in_bits(in.size, [&](auto zero) {
              auto* elements = reinterpret_cast<decltype(zero)*>(blocks[k]);
              for (std::size_t i = joined; i < once; ++i) {
                elements[i] = elements[i - joined];
              }
            });
          } else if (!lies[k] && steps[k] == 0 && along[k] == Along::kFollows) {
            read(in, operands[k], from[k], 0, once, blocks[k]);
          }
        }
        const std::size_t most = all ? length : block;
        for (std::size_t done = 0; done < length; done += most) {
          const std::size_t count = length - done < most ? length - done : most;
          const auto at = static_cast<std::int64_t>(done);
          for (std::size_t k = 0; k < N; ++k) {
            const auto in_size = static_cast<std::int64_t>(size_of(operands[k].dtype));
            if (lies[k]) {
              inputs[k] = from[k] + done * in.size;
            } else if (along[k] == Along::kStays) {
              const std::int64_t step = outer.steps[k + 1];
              const std::uint8_t* first = from[k] + at / static_cast<std::int64_t>(joined) * step * in_size;
              read(in, operands[k], first, step, count / joined, result);
              in_bits(in.size, [&](auto zero) {
                for (std::size_t i = 0; i * joined < count; ++i) {
                  std::fill_n(reinterpret_cast<decltype(zero)*>(blocks[k]) + i * joined, joined,
                              reinterpret_cast<const decltype(zero)*>(result)[i]);
                }
              });
            } else if (steps[k] != 0) {
              read(in, operands[k], from[k] + at * steps[k] * in_size, steps[k], count, blocks[k]);
            }
          }
          std::uint8_t* target = to + at * to_step * out_size;
          run(in, operands[0].dtype, loops, context, inputs, there ? target : result, count);
          if (!there) {
            write(in, result, count, dtype, target, to_step);
          }
        }
      });
}

// Computes nothing: by way of the type that computes with `in`.
template <typename T>
void convert(const Target& out, const Operand& in) {
  const auto in_size = static_cast<std::int64_t>(size_of(in.dtype));
  const auto out_size = static_cast<std::int64_t>(size_of(out.operand.dtype));
  for_each_row(
      out, std::array<Operand, 1>{in},
      [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        const bool there = in.dtype == dtype_of<T>() && steps[0] == 1;
        T block[kBlock];
        for (std::size_t done = 0; done < length; done += kBlock) {
          const std::size_t count = std::min(length - done, kBlock);
          const auto at = static_cast<std::int64_t>(done);
          const std::uint8_t* values = from[0] + at * steps[0] * in_size;
          if (!there) {
            load(in.dtype, values, steps[0], count, block);
          }
          store(out.operand.dtype, there ? reinterpret_cast<const T*>(values) : block, count,
                to + at * to_step * out_size, to_step);
        }
      });
}

struct Picking {
  std::size_t element;
  std::vector<std::vector<std::int64_t>> places;  // in bytes
  std::vector<std::size_t> order;                 // dimensions as they lie in the output
  bool together;                                  // the innermost lie so on both sides
};

// Dimension `i` of the order and those in it; returns the end of what is written.
std::uint8_t* pick_dim(const Picking& all, std::size_t i, const std::uint8_t* from, std::uint8_t* to) {
  const std::vector<std::int64_t>& places = all.places[all.order[i]];
  if (i + 1 == all.order.size()) {
    const std::size_t bytes = places.size() * all.element;
    if (all.together) {
      move_bytes(to, from, bytes);
    } else {
      pick_runs(all.element, all.element, from, places, to);
    }
    return to + bytes;
  }
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (k > 0 && places[k] == places[k - 1]) {
      std::memcpy(to, to - bytes, bytes);
      to += bytes;
    } else {
      std::uint8_t* end = pick_dim(all, i + 1, from + places[k], to);
      bytes = static_cast<std::size_t>(end - to);
      to = end;
    }
  }
  return to;
}

}  // namespace

template <std::size_t N>
void map_with(const Target& out, const std::array<Operand, N>& operands, Domain domain, const Loops& loops,
              const void* context) {
  std::array<DType, N> types;
  std::transform(operands.begin(), operands.end(), types.begin(),
                 [](const Operand& one) { return one.dtype; });
  map_in(out, operands, computed_in(out.operand.dtype, types, domain, loops), loops, context);
}

template <std::size_t N>
void map_with(TensorView& out, const Views<N>& views, Domain domain, const Loops& loops,
              const void* context) {
  std::array<DType, N> types;
  std::array<std::int64_t, N> steps;
  const std::size_t count = out.count();
  bool row = !worth_sharing(count);
  for (std::size_t k = 0; k < N; ++k) {
    types[k] = views[k]->dtype;
    steps[k] = views[k]->lies_as(out) ? 1 : 0;
    row = row && (steps[k] == 1 || views[k]->count() == 1);
  }
  const Computed in = computed_in(out.dtype, types, domain, loops);
  const bool there = in.has(out.dtype);
  bool all = there;
  for (std::size_t k = 0; k < N; ++k) {
    all = all && in.has(types[k]) && steps[k] == 1;
  }
  if (row && (all || count <= kBlock)) {
    alignas(std::max_align_t) std::uint8_t blocks[N + 1][kBlock * sizeof(std::int64_t)];
    const void* inputs[N];
    for (std::size_t k = 0; k < N; ++k) {
      const bool lies = steps[k] == 1 && in.has(types[k]);
      inputs[k] = lies ? views[k]->data : blocks[k];
      if (!lies) {
        read(in, {views[k]->data, types[k], {}}, views[k]->data, steps[k], count, blocks[k]);
      }
    }
    run(in, types[0], loops, context, inputs, there ? out.data : blocks[N], count);
    if (!there) {
      write(in, blocks[N], count, out.dtype, out.data, 1);
    }
    return;
  }
  std::array<Operand, N> operands;
  std::transform(views.begin(), views.end(), operands.begin(),
                 [&out](const TensorView* view) { return operand_of(*view, out); });
  map_in(Target(out), operands, in, loops, context);
}

#define SLIPWAY_MAP(n)                                                                                     \
  template void map_with(const Target&, const std::array<Operand, n>&, Domain, const Loops&, const void*); \
  template void map_with(TensorView&, const Views<n>&, Domain, const Loops&, const void*)
SLIPWAY_MAP(1);
SLIPWAY_MAP(2);
SLIPWAY_MAP(3);
#undef SLIPWAY_MAP

void copy(const Target& out, const Operand& in) {
  if (in.dtype != out.operand.dtype) {
    return in_domain(domain_of(in.dtype), [&](auto zero) { convert<decltype(zero)>(out, in); });
  }
  Move move;
  for (std::size_t d = 0; d < out.rank; ++d) {
    move.add(out.sizes[d], out.operand.steps[d], in.steps[d]);
  }
  move.prepare(size_of(in.dtype));
  // const_cast: targets are outputs.
  move.run(const_cast<std::uint8_t*>(out.operand.data), in.data);
}

bool fits(const Number& number, DType dtype) {
  bool same = true;
  in_narrow(dtype, [&](auto zero) {
    same = number.integer == static_cast<std::int64_t>(static_cast<decltype(zero)>(number.integer));
  });
  return same;
}

void fill(const Target& out, const Number& number) {
  std::uint64_t element = 0;
  auto* to = reinterpret_cast<std::uint8_t*>(&element);
  if (number.integral) {
    store(out.operand.dtype, &number.integer, 1, to, 1);
  } else {
    store(out.operand.dtype, &number.real, 1, to, 1);
  }
  copy(out, {to, out.operand.dtype, {}});
}

Result<std::size_t> wrap_dim(std::int64_t dim, std::size_t rank) {
  const std::int64_t wrapped = dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim;
  if (wrapped < 0 || wrapped >= static_cast<std::int64_t>(rank)) {
    return mismatch("there is no dimension " + std::to_string(dim) + " in a tensor of " +
                    std::to_string(rank));
  }
  return static_cast<std::size_t>(wrapped);
}

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length) {
  Part part{whole(view), view.shape()};
  part.shape[dim] = length;
  advance(&part.operand, start * part.operand.steps[dim]);
  return part;
}

void pick_places(const TensorView& in, std::vector<std::vector<std::int64_t>> places, TensorView& out) {
  const auto steps = in.strides();
  const std::size_t last = out.order[out.rank - 1U];
  const auto element = static_cast<std::int64_t>(size_of(in.dtype));
  const bool together = places[last].empty() && steps[last] == 1;
  for (std::size_t d = 0; d < out.rank; ++d) {
    if (places[d].empty()) {
      places[d].resize(static_cast<std::size_t>(in.sizes[d]));
      std::iota(places[d].begin(), places[d].end(), 0);
    }
    for (std::int64_t& place : places[d]) {
      place *= steps[d] * element;
    }
  }
  pick_dim(
      {size_of(in.dtype), std::move(places), {out.order.begin(), out.order.begin() + out.rank}, together}, 0,
      in.data, out.data);
}

void pick_in_lines(const TensorView& in, const std::array<std::int64_t, kMostDims>& steps, std::int64_t along,
                   const TensorView& places, TensorView& out) {
  const Operand first{in.data, in.dtype, steps};
  in_bits(size_of(in.dtype), [&](auto zero) {
    using Bits = decltype(zero);
    for_each_row(out, std::array<Operand, 2>{first, whole(places)},
                 [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& from_steps,
                     std::size_t count) {
                   const auto* elements = reinterpret_cast<const Bits*>(from[0]);
                   const auto* place = reinterpret_cast<const std::int64_t*>(from[1]);
                   auto* results = reinterpret_cast<Bits*>(to);
                   for (std::size_t i = 0; i < count; ++i) {
                     const auto line = static_cast<std::int64_t>(i);
                     results[line * to_step] =
                         elements[line * from_steps[0] + place[line * from_steps[1]] * along];
                   }
                 });
  });
}

void advance(Operand* operand, std::int64_t elements) {
  // A tensor without elements may have no memory to be ahead in.
  if (operand->data != nullptr) {
    operand->data += elements * static_cast<std::int64_t>(size_of(operand->dtype));
  }
}

Status copy_as(TensorView& out, const Shape& shape, const Operand& operand) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  copy(out, operand);
  return {};
}

}  // namespace slipway::lean
