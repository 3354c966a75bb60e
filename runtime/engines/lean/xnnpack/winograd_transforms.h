// Winograd's transformations of 4x4 pixels, 2x2 results and 3x3 weights, for the vectors `Vector` of the file
// that includes this behind float_tile.h.

namespace {

constexpr float kHalf = 0.5F;

template <typename Load>
INLINE void ON(winograd_input_columns)(Load load, Vector::Type (&to)[4]) {
  const Vector::Type d1 = load(1);
  const Vector::Type d2 = load(2);
  to[0] = Vector::subtract(load(0), d2);
  to[1] = Vector::add(d1, d2);
  to[2] = Vector::subtract(d2, d1);
  to[3] = Vector::subtract(d1, load(3));
}

// One vector of channels: rows in an order that keeps few of them at a time.
template <typename Load>
INLINE void ON(winograd_input_vector)(Load load, float* to, std::size_t stride) {
  Vector::Type above[4];
  Vector::Type below[4];
  const auto row = [&](std::size_t r, Vector::Type(&into)[4]) __attribute__((always_inline)) {
    ON(winograd_input_columns)([&](std::size_t c) __attribute__((always_inline)) { return load(4 * r + c); },
                               into);
  };
  row(0, above);
  row(2, below);
#pragma GCC unroll 4
  for (std::size_t c = 0; c < 4; ++c) {
    Vector::store(to + c * stride, Vector::subtract(above[c], below[c]));
  }
  row(1, above);
#pragma GCC unroll 4
  for (std::size_t c = 0; c < 4; ++c) {
    Vector::store(to + (4 + c) * stride, Vector::add(above[c], below[c]));
    Vector::store(to + (8 + c) * stride, Vector::subtract(below[c], above[c]));
  }
  row(3, below);
#pragma GCC unroll 4
  for (std::size_t c = 0; c < 4; ++c) {
    Vector::store(to + (12 + c) * stride, Vector::subtract(above[c], below[c]));
  }
}

void ON(winograd_input)(const float* const* pixels, std::size_t channels, float* to, std::size_t stride) {
  std::size_t k = 0;
  for (; k + kLanes <= channels; k += kLanes) {
    ON(winograd_input_vector)([&](std::size_t i)
                                  __attribute__((always_inline)) { return Vector::load_any(pixels[i] + k); },
                              to + k, stride);
  }
  if (k < channels) {
    ON(winograd_input_vector)(
        [&](std::size_t i)
            __attribute__((always_inline)) { return Vector::load_some(pixels[i] + k, channels - k); },
        to + k, stride);
  }
}

void ON(winograd_output)(const float* from, std::size_t stride, std::size_t channels, float* const* to,
                         const float* limits) {
  const Vector::Type least = Vector::broadcast(limits);
  const Vector::Type greatest = Vector::broadcast(limits + 1);
  for (std::size_t k = 0; k < channels; k += kLanes) {
    Vector::Type left[4];
    Vector::Type right[4];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < 4; ++r) {
      const auto element = [&](std::size_t c) __attribute__((always_inline)) {
        return Vector::load_any(from + (4 * r + c) * stride + k);
      };
      const Vector::Type m1 = element(1);
      const Vector::Type m2 = element(2);
      left[r] = Vector::add(Vector::add(m1, m2), element(0));
      right[r] = Vector::subtract(Vector::subtract(m1, m2), element(3));
    }
    const Vector::Type results[4] = {
        Vector::add(Vector::add(left[1], left[2]), left[0]),
        Vector::add(Vector::add(right[1], right[2]), right[0]),
        Vector::subtract(Vector::subtract(left[1], left[2]), left[3]),
        Vector::subtract(Vector::subtract(right[1], right[2]), right[3]),
    };
    const bool whole = channels - k >= kLanes;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const Vector::Type result = Vector::clamp(results[i], least, greatest);
      if (whole) {
        Vector::store(to[i] + k, result);
      } else {
        Vector::store_some(to[i] + k, result, channels - k);
      }
    }
  }
}

template <typename Store>
INLINE void ON(winograd_weights_column)(Vector::Type g0, Vector::Type g1, Vector::Type g2, Store store) {
  const Vector::Type half = Vector::broadcast(&kHalf);
  const Vector::Type outer = Vector::multiply(half, Vector::add(g0, g2));
  const Vector::Type inner = Vector::multiply(half, g1);
  store(0, g0);
  store(1, Vector::add(outer, inner));
  store(2, Vector::subtract(outer, inner));
  store(3, g2);
}

template <typename Load, typename Store>
INLINE void ON(winograd_weights_vector)(Load load, Store store) {
  Vector::Type rows[4][3];
#pragma GCC unroll 3
  for (std::size_t c = 0; c < 3; ++c) {
    ON(winograd_weights_column)(load(c), load(3 + c), load(6 + c),
                                [&](std::size_t r, Vector::Type value)
                                    __attribute__((always_inline)) { rows[r][c] = value; });
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < 4; ++r) {
    ON(winograd_weights_column)(rows[r][0], rows[r][1], rows[r][2],
                                [&](std::size_t c, Vector::Type value)
                                    __attribute__((always_inline)) { store(4 * r + c, value); });
  }
}

void ON(winograd_weights)(const float* taps, std::size_t channels, float* to, std::size_t stride) {
  for (std::size_t k = 0; k < channels; k += kLanes) {
    const std::size_t left = channels - k;
    ON(winograd_weights_vector)(
        [&](std::size_t tap) __attribute__((always_inline)) {
          const float* from = taps + tap * channels + k;
          return left >= kLanes ? Vector::load_any(from) : Vector::load_some(from, left);
        },
        [&](std::size_t i, Vector::Type value) __attribute__((always_inline)) {
          if (left >= kLanes) {
            Vector::store(to + i * stride + k, value);
          } else {
            Vector::store_some(to + i * stride + k, value, left);
          }
        });
  }
}

}  // namespace
