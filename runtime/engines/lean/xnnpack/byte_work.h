// Calls of a tile's kernels for layers in 8 bits, as XNNPACK makes them. The file that includes this has the
// kMostRows and kColumns of its tile, compute(work), and ON(name), which ends a name with its instruction
// set's.

// One call of a kernel. A product is a convolution with one tap.
struct ByteWork {
  std::size_t rows;
  std::size_t columns;
  std::size_t depth;
  std::size_t taps;
  const std::int8_t* const* a;  // for each tap as many as the tile has rows
  std::size_t tile;
  std::size_t a_offset;
  const std::int8_t* zero;       // without offset, and
  const std::int8_t* zero_data;  // what is read in its place
  const std::uint8_t* weights;
  std::uint8_t* c;
  std::size_t c_stride;
  const ByteLimits* bytes;    // of a layer that writes 8 bits; or
  const FloatLimits* floats;  // of one that writes float32, with
  const ByteRow* quantized;   // what the rows were quantized with
  std::size_t quantized_step;

  std::size_t padded() const { return (depth + kByteTogether - 1) / kByteTogether * kByteTogether; }
  std::size_t panel_bytes() const {
    const std::size_t numbers = bytes != nullptr ? 2 : 3;  // for each column
    return kColumns * (numbers * sizeof(float) + taps * padded());
  }
};

inline const std::int8_t* ON(tap_start)(const ByteWork& work, std::size_t tap, std::size_t row) {
  const std::int8_t* from = work.a[tap * work.tile + row];
  return from == work.zero ? work.zero_data : from + work.a_offset;
}

inline std::int32_t ON(four_at)(const std::int8_t* from) {
  std::int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return four;
}

void ON(compute)(const ByteWork& work);

ByteWork ON(work_of)(std::size_t rows, std::size_t columns, std::size_t depth, const void* weights, void* c,
                     std::size_t c_stride) {
  ByteWork work = {};
  work.rows = rows;
  work.columns = columns;
  work.depth = depth;
  work.weights = static_cast<const std::uint8_t*>(weights);
  work.c = static_cast<std::uint8_t*>(c);
  work.c_stride = c_stride;
  return work;
}

void ON(set_windows)(ByteWork* work, std::size_t tile, std::size_t taps_bytes, const std::int8_t* const* a,
                     std::size_t a_offset, const std::int8_t* zero, const std::int8_t* zero_data) {
  work->taps = taps_bytes / (tile * sizeof(*a));
  work->a = a;
  work->tile = tile;
  work->a_offset = a_offset;
  work->zero = zero;
  work->zero_data = zero_data;
}

// Rows that lie at equal distances.
[[gnu::noinline]] void ON(compute_rows)(ByteWork work, const std::int8_t* a, std::size_t a_stride) {
  const std::int8_t* starts[kMostRows];
  for (std::size_t row = 0; row < work.rows; ++row) {
    starts[row] = a + row * a_stride;
  }
  work.taps = 1;
  work.a = starts;
  work.tile = kMostRows;
  ON(compute)(work);
}

void ON(byte_gemm)(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                   std::size_t a_stride, const void* weights, std::int8_t* c, std::size_t c_stride,
                   std::size_t, const ByteLimits* limits) {
  ByteWork work = ON(work_of)(rows, columns, depth, weights, c, c_stride);
  work.bytes = limits;
  ON(compute_rows)(work, a, a_stride);
}

void ON(dynamic_gemm)(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                      std::size_t a_stride, const void* weights, float* c, std::size_t c_stride, std::size_t,
                      const FloatLimits* limits, const ByteRow* quantized) {
  ByteWork work = ON(work_of)(rows, columns, depth, weights, c, c_stride);
  work.floats = limits;
  work.quantized = quantized;
  work.quantized_step = 1;
  ON(compute_rows)(work, a, a_stride);
}

template <std::size_t kTile>
void ON(byte_igemm)(std::size_t rows, std::size_t columns, std::size_t depth, std::size_t taps_bytes,
                    const std::int8_t** a, const void* weights, std::int8_t* c, std::size_t c_stride,
                    std::size_t, std::size_t a_offset, const std::int8_t* zero, const ByteLimits* limits) {
  ByteWork work = ON(work_of)(rows, columns, depth, weights, c, c_stride);
  ON(set_windows)(&work, kTile, taps_bytes, a, a_offset, zero, zero);
  work.bytes = limits;
  ON(compute)(work);
}

template <std::size_t kTile>
void ON(dynamic_igemm)(std::size_t rows, std::size_t columns, std::size_t depth, std::size_t taps_bytes,
                       const std::int8_t** a, const void* weights, float* c, std::size_t c_stride,
                       std::size_t, std::size_t a_offset, const std::int8_t* zero,
                       const std::int8_t* zero_data, const FloatLimits* limits, const ByteRow* quantized) {
  ByteWork work = ON(work_of)(rows, columns, depth, weights, c, c_stride);
  ON(set_windows)(&work, kTile, taps_bytes, a, a_offset, zero, zero_data);
  work.floats = limits;
  work.quantized = quantized;
  ON(compute)(work);
}

template <std::size_t kTile>
constexpr ByteTile kTileOf = {&ON(byte_gemm), &ON(byte_igemm) < kTile >, &ON(dynamic_gemm),
                              &ON(dynamic_igemm) < kTile > };
