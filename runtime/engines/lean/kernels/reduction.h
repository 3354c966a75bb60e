// Visiting the elements that a reduction makes one of, and the lines along a dimension.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// The elements behind one element of a reduction's output, in row-major order.
template <typename T>
class Line {
 public:
  Line(DType dtype, const std::uint8_t* data, const Axes& axes) : dtype_(dtype), data_(data), axes_(axes) {}

  std::size_t count() const { return axes_.count(); }

  // There must be one.
  T first() const { return load_one<T>(dtype_, data_); }

  // Calls f(elements, count) for all of them, in order and as many as lie together or are converted at once;
  // until it gives false, if it gives anything.
  template <typename F>
  void runs(F f) const {
    if (axes_.empty) {
      return;
    }
    const std::size_t outer = axes_.rank == 0 ? 0 : axes_.rank - 1;
    const Axis row = axes_.rank == 0 ? Axis{1, {}} : axes_.items[outer];
    const auto size = static_cast<std::int64_t>(size_of(dtype_));
    const bool there = dtype_ == dtype_of<T>() && (row.steps[0] == 1 || row.size == 1);
    const auto length = static_cast<std::size_t>(row.size);
    const auto goes_on = [&f](const T* values, std::size_t count) {
      if constexpr (std::is_void_v<decltype(f(values, count))>) {
        f(values, count);
        return true;
      } else {
        return f(values, count);
      }
    };
    T block[kBlock];
    Walk<1> walk(axes_, outer);
    do {
      const std::uint8_t* from = data_ + walk.offsets[0] * size;
      if (there && !goes_on(reinterpret_cast<const T*>(from), length)) {
        return;
      }
      for (std::size_t done = there ? length : 0; done < length; done += kBlock) {
        const std::size_t count = std::min(length - done, kBlock);
        load(dtype_, from + static_cast<std::int64_t>(done) * row.steps[0] * size, row.steps[0], count,
             block);
        if (!goes_on(block, count)) {
          return;
        }
      }
    } while (walk.next());
  }

  // Calls f(element) for each, in order.
  template <typename F>
  void each(F f) const {
    runs([&f](const T* values, std::size_t count) { std::for_each_n(values, count, f); });
  }

 private:
  DType dtype_;
  const std::uint8_t* data_;
  const Axes& axes_;
};

// Lines of so few elements cost more to begin than to read.
inline constexpr std::size_t kShortLine = 64;
// So many lines are followed at once, where they are no longer than so much.
inline constexpr std::size_t kLinesTogether = 32;
inline constexpr std::size_t kLongestTogether = 1024;

class Reduction {
 public:
  // Over `dims` of `in`, all of them when there are none; gives `out` its shape.
  Status plan(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, TensorView* out);

  // out = f(line) for each element of the output.
  template <typename T, typename F>
  void each(const TensorView& in, TensorView& out, F f) {
    const auto in_size = static_cast<std::int64_t>(size_of(in.dtype));
    const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
    for_each_row(
        out, first_elements(in),
        [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
          const std::uint8_t* at = from[0];
          for (std::size_t i = 0; i < length; ++i, at += steps[0] * in_size, to += to_step * out_size) {
            const T value = f(Line<T>(in.dtype, at, reduced_));
            store(out.dtype, &value, 1, to, 1);
          }
        },
        kLinesTogether, 0);
  }

  // out = op.finish(what op.next(so far, element) makes of all elements, their count), beginning with
  // op.start(first element). Where lines are short, or lie across memory and their neighbours along it, many
  // lines are followed at once.
  template <typename T, typename Op>
  void follow(const TensorView& in, TensorView& out, const Op& op) {
    visit_blocks<T, T>(
        in, out, [&op](const Line<T>& line) { return op(line); },
        [&](const std::uint8_t* from, std::int64_t step, std::size_t count, T* total) {
          follow_lines(in, from, step, count, op, total);
        });
  }

  // out = the place in its line of the element that op.takes(best so far, element) chose last: int64.
  template <typename T, typename Op>
  void each_index(const TensorView& in, TensorView& out, const Op& op) {
    visit_blocks<T, std::int64_t>(
        in, out, [&op](const Line<T>& line) { return op.index_in(line); },
        [&](const std::uint8_t* from, std::int64_t step, std::size_t count, std::int64_t* places) {
          follow_places<T>(in, from, step, count, op, places);
        });
  }

  // out = the element at each line's place, which each_index() chose along one dimension.
  void pick(const TensorView& in, const TensorView& places, TensorView& out) const {
    pick_in_lines(in, kept_, reduced_.rank == 0 ? 0 : reduced_.items[0].steps[0], places, out);
  }

 private:
  // Those of the lines.
  std::array<Operand, 1> first_elements(const TensorView& in) const { return {{{in.data, in.dtype, kept_}}}; }

  // Writes what of_line(line) makes of each line; where lines are short or lie across memory, what
  // of_block(first line, from one to the next, how many, results) makes of up to kBlock neighbours.
  template <typename T, typename Result, typename OfLine, typename OfBlock>
  void visit_blocks(const TensorView& in, TensorView& out, OfLine of_line, OfBlock of_block) {
    const auto in_size = static_cast<std::int64_t>(size_of(in.dtype));
    const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
    const bool is_short = reduced_.count() <= kShortLine;
    const bool several = out.count() > 1;
    for_each_row(
        out, first_elements(in),
        [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
          const std::int64_t step = steps[0];
          const bool across =
              step == 1 && reduced_.rank != 0 && reduced_.items[reduced_.rank - 1].steps[0] != 1;
          const bool together = several && (is_short || across);
          const std::size_t most = together ? kBlock : 1;
          for (std::size_t done = 0; done < length; done += most) {
            const std::size_t count = length - done < most ? length - done : most;
            const auto at = static_cast<std::int64_t>(done);
            Result results[kBlock];
            if (together) {
              of_block(from[0] + at * step * in_size, step, count, results);
            } else {
              results[0] = of_line(Line<T>(in.dtype, from[0] + at * step * in_size, reduced_));
            }
            store(out.dtype, results, count, to + at * to_step * out_size, to_step);
          }
        },
        kLinesTogether, reduced_.count());
  }

  // Calls f(elements, place) with the elements of `count` lines at each place of the lines, which begin
  // `step` elements after one another.
  template <typename T, typename F>
  void for_each_place(const TensorView& in, const std::uint8_t* from, std::int64_t step, std::size_t count,
                      F f) {
    const auto size = static_cast<std::int64_t>(size_of(in.dtype));
    const bool there = in.dtype == dtype_of<T>() && step == 1;
    T block[kBlock];
    if (reduced_.empty) {
      return;
    }
    Walk<1> walk(reduced_);
    std::size_t place = 0;
    do {
      const std::uint8_t* at = from + walk.offsets[0] * size;
      if (!there) {
        load(in.dtype, at, step, count, block);
      }
      f(there ? reinterpret_cast<const T*>(at) : static_cast<const T*>(block), place++);
    } while (walk.next());
  }

  // total[i] = what `op` makes of line i; `count` lines begin `step` elements after one another.
  template <typename T, typename Op>
  void follow_lines(const TensorView& in, const std::uint8_t* from, std::int64_t step, std::size_t count,
                    const Op& op, T* total) {
    const std::size_t length = reduced_.count();
    if (length == 0) {
      std::fill_n(total, count, T{});
    }
    for_each_place<T>(in, from, step, count, [&](const T* values, std::size_t place) {
      if (place == 0) {
        for (std::size_t i = 0; i < count; ++i) {
          total[i] = op.start(values[i]);
        }
        return;
      }
      for (std::size_t i = 0; i < count; ++i) {
        total[i] = op.next(total[i], values[i]);
      }
    });
    for (std::size_t i = 0; i < count; ++i) {
      total[i] = op.finish(total[i], length);
    }
  }

  // places[i] = where in line i the element is that `op` takes last.
  template <typename T, typename Op>
  void follow_places(const TensorView& in, const std::uint8_t* from, std::int64_t step, std::size_t count,
                     const Op& op, std::int64_t* places) {
    // As wide as the elements, so that a loop over both fills vectors.
    using Place = std::conditional_t<sizeof(T) == sizeof(std::int64_t), std::int64_t, std::int32_t>;
    Place chosen[kBlock] = {};
    T best[kBlock];
    load(in.dtype, from, step, count, best);
    for_each_place<T>(in, from, step, count, [&](const T* values, std::size_t place) {
      for (std::size_t i = 0; i < count; ++i) {
        const bool taken = op.takes(best[i], values[i]);
        best[i] = taken ? values[i] : best[i];
        chosen[i] = taken ? static_cast<Place>(place) : chosen[i];
      }
    });
    std::copy_n(chosen, count, places);
  }

  std::array<std::int64_t, kMostDims> kept_{};  // steps in the input along the output's dimensions
  Axes reduced_;
};

// Copies the lines of `in` along `dim`, converted to T, gives them to a function that writes over them, and
// writes them to the same lines of `out`, which has in's shape. Lines that are short, or lie across memory,
// go to many(elements, length): element `place` of line `i` is elements[place * kLinesTogether + i]. Others
// go to one(line, length).
template <typename T, typename One, typename Many>
Status along(const TensorView& in, TensorView& out, std::size_t dim, One one, Many many) {
  const std::size_t length = in.rank == 0 ? 1 : static_cast<std::size_t>(in.sizes[dim]);
  const std::int64_t in_step = in.rank == 0 ? 1 : in.strides()[dim];
  const std::int64_t out_step = in.rank == 0 ? 1 : out.strides()[dim];
  const auto in_size = static_cast<std::int64_t>(size_of(in.dtype));
  const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
  TensorView lines = in;  // their first elements
  lines.sizes[dim] = 1;
  const bool there = out.dtype == dtype_of<T>() && out_step == 1;
  const bool fits = length <= kLongestTogether && (length <= kShortLine || in_step != 1);
  for_each_row(
      lines, std::array<Operand, 2>{whole(in), whole(out)},
      [&](const std::uint8_t*, std::int64_t, const auto& at, const auto& steps, std::size_t count) {
        std::vector<T> copied(fits ? length * kLinesTogether : there ? 0 : length);
        for (std::size_t done = 0; done < count;) {
          const auto first = static_cast<std::int64_t>(done);
          const std::uint8_t* from = at[0] + first * steps[0] * in_size;
          // const_cast: it is of an output.
          std::uint8_t* to = const_cast<std::uint8_t*>(at[1]) + first * steps[1] * out_size;
          const std::size_t left = count - done;
          if (fits && left > kLinesTogether / 8) {
            const std::size_t some = left < kLinesTogether ? left : kLinesTogether;
            T* row = copied.data();
            for (std::size_t i = 0; i < length; ++i, row += kLinesTogether) {
              load(in.dtype, from + static_cast<std::int64_t>(i) * in_step * in_size, steps[0], some, row);
            }
            many(copied.data(), length);
            row = copied.data();
            for (std::size_t i = 0; i < length; ++i, row += kLinesTogether) {
              store(out.dtype, row, some, to + static_cast<std::int64_t>(i) * out_step * out_size, steps[1]);
            }
            done += some;
            continue;
          }
          T* line = there ? reinterpret_cast<T*>(to) : copied.data();
          load(in.dtype, from, in_step, length, line);
          one(line, length);
          if (!there) {
            store(out.dtype, line, length, to, out_step);
          }
          ++done;
        }
      },
      kLinesTogether, length);
  return {};
}

}  // namespace slipway::lean
