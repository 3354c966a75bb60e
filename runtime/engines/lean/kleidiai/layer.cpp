#include "lean/kleidiai/layer.h"

#if SLIPWAY_KLEIDIAI_LAYERS
#include <algorithm>
#include <string>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

// Denormals as XNNPACK treats them.
constexpr std::uint32_t kPoolFlags = PTHREADPOOL_FLAG_DISABLE_DENORMALS;
// Packed rows that stay in a core's second cache while all weights go over them.
constexpr std::size_t kBandBytes = std::size_t{1} << 18;

const KaiWay* way_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kDynamic8:
      return dynamic8_way();
    case Arithmetic::kHalf:
      return half_way();
    case Arithmetic::kSingle:
      return single_way();
    case Arithmetic::kStatic8:
      return static8_way();
  }
  return nullptr;
}

std::size_t divided_up(std::size_t number, std::size_t by) {
  return number / by + (number % by != 0 ? 1 : 0);
}

// Columns to give a thread at a time, a multiple of `step`: some tiles for each thread, so that a slow one
// holds nobody up for long.
std::size_t tile_columns(std::size_t outputs, std::size_t step, std::size_t tiles_of_rows,
                         pthreadpool_t threads) {
  const std::size_t tiles = divided_up(5 * pthreadpool_get_threads_count(threads), tiles_of_rows);
  return divided_up(divided_up(outputs, tiles), step) * step;
}

const KaiKernel& kai_kernel(const KaiWay& way, const LayerShape& shape) {
  return shape.rows == shape.batches ? way.one : way.many;
}

struct KaiWork {
  const KaiWay& way;
  const KaiKernel& kernel;
  const MatrixLayer& layer;
  const LayerShape& shape;
  std::size_t rows;  // of a batch
  const std::uint8_t* input;
  const std::uint8_t* other;
  std::uint8_t* output;
  const std::uint8_t* weights;
  std::size_t weights_size = 0;         // of a batch
  std::uint8_t* given = nullptr;        // where a second input is packed
  const std::uint8_t* zeros = nullptr;  // a pixel outside of the image, or the bias of such a product
  std::uint8_t* packed = nullptr;       // rows, and the bytes of a batch of them
  std::size_t packed_size = 0;
  std::size_t first = 0;  // row of a window that is packed

  std::size_t stride() const { return shape.depth * way.element; }
  const std::uint8_t* row(std::size_t batch, std::size_t at) const {
    return input + (batch * rows + at) * stride();
  }
};

void pack_rows(void* context, std::size_t batch, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const KaiWork*>(context);
  const RowPacking& packing = work.way.rows;
  const std::size_t depth = work.shape.depth;
  const KaiKernel& kernel = work.kernel;
  packing.run(count, depth, kernel.mr(), kernel.kr(), kernel.sr(), 0, work.row(batch, row), work.stride(),
              work.packed + batch * work.packed_size +
                  packing.offset(row, depth, kernel.mr(), kernel.kr(), kernel.sr()));
}

void pack_given(void* context, std::size_t batch, std::size_t column, std::size_t count) {
  const auto& work = *static_cast<const KaiWork*>(context);
  const WeightPacking& packing = work.way.weights;
  const std::size_t depth = work.shape.depth;
  const std::size_t stride = work.shape.outputs * work.way.element;
  packing.run(1, count, depth, packing.n_step(), packing.kr, 1, stride,
              work.other + batch * depth * stride + column * work.way.element, work.zeros, nullptr,
              work.given + batch * work.weights_size + packing.offset(column, depth), 0, nullptr);
}

void multiply(void* context, std::size_t batch, std::size_t row, std::size_t column, std::size_t rows,
              std::size_t columns) {
  const auto& work = *static_cast<const KaiWork*>(context);
  const KaiKernel& kernel = work.kernel;
  const std::size_t depth = work.shape.depth;
  const std::size_t stride = work.shape.outputs * work.way.element;
  const std::uint8_t* input = kernel.mr == nullptr
                                  ? work.row(batch, row)
                                  : work.packed + batch * work.packed_size + kernel.lhs_offset(row, depth);
  kernel.run(work.layer, rows, columns, depth, input, work.stride(),
             work.weights + batch * work.weights_size + kernel.rhs_offset(column, depth),
             work.output + batch * work.rows * stride + kernel.dst_offset(row, column, stride), stride);
}

// The pixel `at` of the window at `position`, or that there is none: padding.
bool window_pixel(const Window& window, std::size_t position, std::size_t at, std::size_t size,
                  std::size_t* found) {
  const std::uint64_t padded = position * window.stride + at * window.dilation;
  *found = static_cast<std::size_t>(padded - window.before);
  return padded >= window.before && padded - window.before < size;
}

// One pointer a row and pixel of its window: those of a pixel together, `step` of them, as the packing takes
// them. Rows behind the last are padding.
std::vector<const void*> pointers_of(const KaiWork& run, std::size_t first, std::size_t count,
                                     std::size_t step) {
  const MatrixLayer& layer = run.layer;
  const LayerShape& shape = run.shape;
  const std::size_t pixel = layer.channels * run.way.element;
  std::vector<const void*> pointers(step * chunks_of(layer), run.zeros);
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
  const auto& run = *static_cast<const KaiWork*>(context);
  const WindowKernel& kernel = *run.way.windows;
  const std::size_t chunks = chunks_of(run.layer);
  const std::size_t length = run.layer.channels;
  const std::vector<const void*> pointers = pointers_of(run, run.first + row, count, kernel.m_step());
  kernel.gather(count, chunks, length, pointers.data(), 0, run.zeros,
                run.packed + kernel.lhs_offset(row, chunks, length));
}

void multiply_windows(void* context, std::size_t row, std::size_t column, std::size_t rows,
                      std::size_t columns) {
  const auto& run = *static_cast<const KaiWork*>(context);
  const WindowKernel& kernel = *run.way.windows;
  const std::size_t chunks = chunks_of(run.layer);
  const std::size_t length = run.layer.channels;
  const std::size_t stride = run.layer.outputs * run.way.element;
  kernel.run(run.layer, rows, columns, chunks, run.packed + kernel.lhs_offset(row, chunks, length),
             run.weights + kernel.rhs_offset(column, chunks, length),
             run.output + kernel.dst_offset(run.first + row, column, stride), stride);
}

// Packs some rows at a time into `packed`, for all rows of a large image are many times the image.
void run_windows(KaiWork run, std::vector<std::uint8_t>* packed, pthreadpool_t threads) {
  const WindowKernel& kernel = *run.way.windows;
  const std::size_t chunks = chunks_of(run.layer);
  const std::size_t length = run.layer.channels;
  const std::size_t step = kernel.m_step();
  const std::size_t tiles =
      std::max(pthreadpool_get_threads_count(threads), kBandBytes / kernel.lhs_size(step, chunks, length));
  const std::size_t most = std::min(divided_up(run.shape.rows, step), tiles) * step;
  packed->resize(kernel.lhs_size(most, chunks, length));
  run.packed = packed->data();
  for (; run.first < run.shape.rows; run.first += most) {
    const std::size_t count = std::min(most, run.shape.rows - run.first);
    pthreadpool_parallelize_1d_tile_1d(threads, gather_windows, &run, count, step, kPoolFlags);
    pthreadpool_parallelize_2d_tile_2d(
        threads, multiply_windows, &run, count, run.layer.outputs, step,
        tile_columns(run.layer.outputs, kernel.n_step(), divided_up(count, step), threads), kPoolFlags);
  }
}

}  // namespace

bool kai_has(const MatrixLayer& layer) {
  const KaiWay* way = way_of(layer.arithmetic);
  return way != nullptr && (!layer.windowed || way->windows != nullptr) &&
         (!layer.given || way->weights.run != nullptr);
}

bool kai_has_any() {
  return dynamic8_way() != nullptr || half_way() != nullptr || single_way() != nullptr ||
         static8_way() != nullptr;
}

Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights) {
  auto made = std::make_unique<KaiLayer>(layer, *way_of(layer.arithmetic));
  const Status packed = made->pack(weights);
  return packed.ok() ? Result<std::unique_ptr<KaiLayer>>(std::move(made)) : packed;
}

Status KaiLayer::pack(PackedWeights& weights) {
  if (layer_.given) {
    zeros_.resize(way_.weights.n_step() * way_.element);
    return {};
  }
  const bool windowed = layer_.windowed;
  if (windowed) {
    zeros_.assign(layer_.channels * way_.element, static_cast<std::uint8_t>(layer_.input_zero));
  }
  const std::size_t batch_size =
      windowed ? way_.windows->rhs_size(layer_.outputs, chunks_of(layer_), layer_.channels)
               : way_.weights.size(layer_.outputs, layer_.depth);
  const std::size_t size = batch_size * layer_.batches;
  const std::uint32_t seed = windowed ? way_.window_seed : way_.seed;
  xnn_weights_cache_t cache = weights.provider();
  const xnn_weights_cache_look_up_key key = {seed, layer_.weights, layer_.bias};
  std::size_t offset = cache->look_up(cache->context, &key);
  if (offset == SIZE_MAX) {
    auto* memory = static_cast<std::uint8_t*>(cache->reserve_space(cache->context, size));
    if (memory == nullptr) {
      return {Code::kMemory, "There is no memory for packed weights: " + std::to_string(size) + " bytes.",
              "use a smaller program, or a device with more memory"};
    }
    for (std::size_t batch = 0; batch < layer_.batches; ++batch) {
      way_.pack(layer_, way_, batch, memory + batch * batch_size);
    }
    offset = cache->look_up_or_insert(cache->context, &key, memory, size);
  }
  packed_ = static_cast<const std::uint8_t*>(cache->offset_to_addr(cache->context, offset));
  return {};
}

void KaiLayer::run(const LayerShape& shape, const void* input, const void* other, void* output,
                   pthreadpool_t threads) {
  if (shape.rows == 0 || shape.outputs == 0) {
    return;
  }
  const auto* from = static_cast<const std::uint8_t*>(input);
  auto* to = static_cast<std::uint8_t*>(output);
  const KaiKernel& kernel = kai_kernel(way_, shape);
  const std::size_t rows = shape.rows / shape.batches;
  KaiWork work{way_, kernel, layer_, shape, rows, from, static_cast<const std::uint8_t*>(other), to, packed_};
  work.zeros = zeros_.data();
  if (layer_.windowed) {
    run_windows(work, &rows_, threads);
    return;
  }
  work.weights_size = way_.weights.size(shape.outputs, shape.depth);
  if (layer_.given) {
    given_.resize(work.weights_size * shape.batches);
    work.given = given_.data();
    work.weights = given_.data();
    pthreadpool_parallelize_2d_tile_1d(threads, pack_given, &work, shape.batches, shape.outputs,
                                       way_.weights.n_step(), kPoolFlags);
  }
  if (kernel.mr != nullptr) {
    work.packed_size = way_.rows.size(rows, shape.depth, kernel.mr(), kernel.kr(), kernel.sr());
    rows_.resize(work.packed_size * shape.batches);
    work.packed = rows_.data();
    pthreadpool_parallelize_2d_tile_1d(threads, pack_rows, &work, shape.batches, rows, kernel.mr(),
                                       kPoolFlags);
  }
  const std::size_t columns = tile_columns(shape.outputs, kernel.n_step(),
                                           shape.batches * divided_up(rows, kernel.m_step()), threads);
  pthreadpool_parallelize_3d_tile_2d(threads, multiply, &work, shape.batches, rows, shape.outputs,
                                     kernel.m_step(), columns, kPoolFlags);
}

KernelUse KaiLayer::use(const LayerShape& shape) const {
  const char* kind = "Fully Connected (NC, ";
  if (layer_.operation == Operation::kConvolution) {
    kind = "Convolution (NHWC, ";
  } else if (layer_.operation == Operation::kBatchMatrixMultiply) {
    kind = "Batch Matrix Multiply (NC, ";
  }
  const std::string node = std::string(kind) + way_.types + (layer_.windowed ? ") IGEMM" : ") GEMM");
  if (layer_.windowed) {
    return {node, way_.windows->name, "KleidiAI", way_.windows->feature};
  }
  const KaiKernel& kernel = kai_kernel(way_, shape);
  return {node, kernel.name, "KleidiAI", kernel.feature};
}

}  // namespace slipway::lean
#else

namespace slipway::lean {

bool kai_has(const MatrixLayer& /*layer*/) {
  return false;
}

bool kai_has_any() {
  return false;
}

void KaiLayer::run(const LayerShape& /*shape*/, const void* /*input*/, const void* /*other*/,
                   void* /*output*/, pthreadpool_t /*threads*/) {}

KernelUse KaiLayer::use(const LayerShape& /*shape*/) const {
  return {};
}

Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& /*layer*/, PackedWeights& /*weights*/) {
  return Status(Code::kExecution, "This runner was built without KleidiAI.", "build it again");
}

}  // namespace slipway::lean
#endif
