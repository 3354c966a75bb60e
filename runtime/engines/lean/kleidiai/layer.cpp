#include "lean/kleidiai/layer.h"

#include <algorithm>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {

bool kai_has(const MatrixLayer& layer) {
  switch (layer.arithmetic) {
    case Arithmetic::kDynamic8:
      return has_dynamic8(layer);
    case Arithmetic::kHalf:
      return has_half(layer);
    case Arithmetic::kSingle:
      return has_single(layer);
    case Arithmetic::kStatic8:
      return has_static8(layer);
  }
  return false;
}

bool kai_has_any() {
  MatrixLayer layer;
  bool any = false;
  for (const Arithmetic arithmetic :
       {Arithmetic::kDynamic8, Arithmetic::kHalf, Arithmetic::kSingle, Arithmetic::kStatic8}) {
    layer.arithmetic = arithmetic;
    any = any || kai_has(layer);
  }
  return any;
}

Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights) {
  switch (layer.arithmetic) {
    case Arithmetic::kDynamic8:
      return make_dynamic8(layer, weights);
    case Arithmetic::kHalf:
      return make_half(layer, weights);
    case Arithmetic::kSingle:
      return make_single(layer, weights);
    default:
      return make_static8(layer, weights);
  }
}

Status KaiLayer::pack_once(std::uint32_t seed, std::size_t step, std::size_t size, PackedWeights& weights,
                           const std::function<void(std::uint8_t*)>& write) {
  xnn_weights_cache_t cache = weights.provider();
  const xnn_weights_cache_look_up_key key = {seed, layer_.weights, layer_.bias};
  std::size_t packed_offset = cache->look_up(cache->context, &key);
  if (packed_offset == SIZE_MAX) {
    auto* memory = static_cast<std::uint8_t*>(cache->reserve_space(cache->context, size));
    if (memory == nullptr) {
      return {Code::kMemory, "There is no memory for packed weights: " + std::to_string(size) + " bytes.",
              "use a smaller program, or a device with more memory"};
    }
    write(memory);
    packed_offset = cache->look_up_or_insert(cache->context, &key, memory, size);
  }
  weights.confirm({packed_offset, {0, static_cast<std::uint32_t>(step), 0, 0, seed}, size});
  packed_ = static_cast<const std::uint8_t*>(cache->offset_to_addr(cache->context, packed_offset));
  return {};
}

std::size_t divided_up(std::size_t number, std::size_t by) {
  return number / by + (number % by != 0 ? 1 : 0);
}

std::size_t tile_columns(std::size_t outputs, std::size_t step, std::size_t tiles_of_rows,
                         pthreadpool_t threads) {
  const std::size_t tiles = divided_up(5 * pthreadpool_get_threads_count(threads), tiles_of_rows);
  return divided_up(divided_up(outputs, tiles), step) * step;
}

std::string node_name(const MatrixLayer& layer, const char* types) {
  const char* kind = "Fully Connected (NC, ";
  if (layer.operation == Operation::kConvolution) {
    kind = "Convolution (NHWC, ";
  } else if (layer.operation == Operation::kBatchMatrixMultiply) {
    kind = "Batch Matrix Multiply (NC, ";
  }
  return std::string(kind) + types + (layer.windowed ? ") IGEMM" : ") GEMM");
}

namespace {

// Packed rows that stay in a core's second cache while all weights go over them.
constexpr std::size_t kBandBytes = std::size_t{1} << 18;

struct Band {
  const WindowRun& run;
  std::size_t first;  // row
  std::uint8_t* packed;
};

// The pixel `at` of the window at `position`, or that there is none: padding.
bool window_pixel(const Window& window, std::size_t position, std::size_t at, std::size_t size,
                  std::size_t* found) {
  const std::uint64_t padded = position * window.stride + at * window.dilation;
  *found = static_cast<std::size_t>(padded - window.before);
  return padded >= window.before && padded - window.before < size;
}

// One pointer a row and pixel of its window: those of a pixel together, `step` of them, as the packing takes
// them. Rows behind the last are padding.
std::vector<const void*> pointers_of(const WindowRun& run, std::size_t first, std::size_t count,
                                     std::size_t step) {
  const MatrixLayer& layer = run.layer;
  const LayerShape& shape = run.shape;
  const std::size_t pixel = layer.channels * run.element;
  std::vector<const void*> pointers(step * chunks_of(layer), run.padding);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = first + i;
    const std::size_t x = row % shape.across;
    const std::size_t y = row / shape.across % shape.down;
    const std::uint8_t* image =
        run.input + row / shape.across / shape.down * shape.height * shape.width * pixel;
    for (std::size_t ky = 0; ky < layer.down.kernel; ++ky) {
      std::size_t from_y = 0;
      if (!window_pixel(layer.down, y, ky, shape.height, &from_y)) {
        continue;
      }
      for (std::size_t kx = 0; kx < layer.across.kernel; ++kx) {
        std::size_t from_x = 0;
        if (window_pixel(layer.across, x, kx, shape.width, &from_x)) {
          pointers[(ky * layer.across.kernel + kx) * step + i] =
              image + (from_y * shape.width + from_x) * pixel;
        }
      }
    }
  }
  return pointers;
}

void gather_windows(void* context, std::size_t row, std::size_t count) {
  const auto& band = *static_cast<const Band*>(context);
  const WindowRun& run = band.run;
  const std::size_t chunks = chunks_of(run.layer);
  const std::size_t length = run.layer.channels;
  const std::vector<const void*> pointers = pointers_of(run, band.first + row, count, run.gathering.m_step());
  run.gathering.run(count, chunks, length, pointers.data(), 0, run.padding,
                    band.packed + run.gathering.offset(row, chunks, length));
}

void multiply_windows(void* context, std::size_t row, std::size_t column, std::size_t rows,
                      std::size_t columns) {
  const auto& band = *static_cast<const Band*>(context);
  const WindowRun& run = band.run;
  run.multiply(band.first + row,
               band.packed + run.gathering.offset(row, chunks_of(run.layer), run.layer.channels), rows,
               column, columns);
}

}  // namespace

std::size_t chunks_of(const MatrixLayer& layer) {
  return static_cast<std::size_t>(layer.down.kernel * layer.across.kernel);
}

void run_windows(const WindowRun& run, std::vector<std::uint8_t>* packed, pthreadpool_t threads) {
  const Gathering& gathering = run.gathering;
  const std::size_t chunks = chunks_of(run.layer);
  const std::size_t length = run.layer.channels;
  const std::size_t step = gathering.m_step();
  const std::size_t tiles =
      std::max(pthreadpool_get_threads_count(threads), kBandBytes / gathering.size(step, chunks, length));
  const std::size_t most = std::min(divided_up(run.shape.rows, step), tiles) * step;
  packed->resize(gathering.size(most, chunks, length));
  Band band{run, 0, packed->data()};
  for (; band.first < run.shape.rows; band.first += most) {
    const std::size_t count = std::min(most, run.shape.rows - band.first);
    pthreadpool_parallelize_1d_tile_1d(threads, gather_windows, &band, count, step, kPoolFlags);
    pthreadpool_parallelize_2d_tile_2d(
        threads, multiply_windows, &band, count, run.layer.outputs, step,
        tile_columns(run.layer.outputs, run.column_step, divided_up(count, step), threads), kPoolFlags);
  }
}

}  // namespace slipway::lean
