// Layers of which everything is of one type of floating point; what differs is which kernels there are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {

struct FloatKernel : KaiKernel {
  // Of packed rows.
  void (*run_packed)(std::size_t m, std::size_t n, std::size_t k, const void* lhs, const void* rhs, void* dst,
                     std::size_t row_stride, std::size_t column_stride, float min, float max);
  // Of rows as they are.
  void (*run)(std::size_t m, std::size_t n, std::size_t k, const void* lhs, std::size_t lhs_stride,
              const void* rhs, void* dst, std::size_t row_stride, std::size_t column_stride, float min,
              float max);
};

// How rows are packed.
struct RowPacking {
  std::size_t kr;
  std::size_t (*offset)(std::size_t row, std::size_t depth, std::size_t mr, std::size_t kr, std::size_t sr);
  std::size_t (*size)(std::size_t rows, std::size_t depth, std::size_t mr, std::size_t kr, std::size_t sr);
  void (*run)(std::size_t m, std::size_t k, std::size_t mr, std::size_t kr, std::size_t sr, std::size_t first,
              const void* lhs, std::size_t stride, void* packed);
};

// How weights are packed, a block of outputs at a time.
struct WeightPacking {
  std::size_t (*n_step)();
  std::size_t (*offset)(std::size_t column, std::size_t depth);
  std::size_t (*size)(std::size_t columns, std::size_t depth);
  std::size_t kr;
  void (*run)(std::size_t groups, std::size_t n, std::size_t k, std::size_t nr, std::size_t kr,
              std::size_t sr, std::size_t stride, const void* rhs, const void* bias, const void* scale,
              void* packed, std::size_t extra, const void* params);
};

// A kernel for windows, whose rows are gathered; the weights of each pixel are padded by themselves.
struct WindowKernel {
  const char* name;
  const char* feature;
  std::size_t (*n_step)();
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  void (*run)(std::size_t m, std::size_t n, std::size_t chunks, std::size_t length, const void* lhs,
              const void* rhs, void* dst, std::size_t stride, float min, float max);
  std::size_t (*rhs_offset)(std::size_t column, std::size_t chunks, std::size_t length);
  std::size_t (*rhs_size)(std::size_t columns, std::size_t chunks, std::size_t length);
  void (*pack)(std::size_t n, std::size_t chunks, std::size_t length, std::size_t stride, const void* rhs,
               const void* bias, void* packed);
  Gathering gathering;
};

struct FloatWay {
  std::uint32_t seed;         // tells its packed weights from others
  std::uint32_t window_seed;  // and those of its kernel for windows
  bool xnn_hardware_config::* needs;
  FloatKernel many;
  FloatKernel one;
  WeightPacking packing;
  RowPacking rows;
  const WindowKernel* windows;  // nullptr: none
};

#define SLIPWAY_WEIGHTS(name, kr)                                                               \
  {kai_get_n_step_##name, kai_get_rhs_packed_offset_##name, kai_get_rhs_packed_size_##name, kr, \
   kai_run_##name}
#define SLIPWAY_ROWS(name, kr) \
  {kr, kai_get_lhs_packed_offset_##name, kai_get_lhs_packed_size_##name, kai_run_##name}
#define SLIPWAY_WINDOWS(prefix, variant, feature, weights, rows) \
  {"kai_run_" #prefix #variant,                                  \
   feature,                                                      \
   kai_get_n_step_##prefix##variant,                             \
   kai_get_dst_offset_##prefix##variant,                         \
   kai_run_##prefix##variant,                                    \
   kai_get_rhs_packed_offset_##weights,                          \
   kai_get_rhs_packed_size_##weights,                            \
   kai_run_##weights,                                            \
   SLIPWAY_GATHERING(rows)}

template <typename Element>
class FloatLayer : public KaiLayer {
 public:
  // `types`: as XNNPACK names the arithmetic.
  FloatLayer(const MatrixLayer& layer, const FloatWay& way, const char* types)
      : KaiLayer(layer), way_(way), types_(types), padding_(layer.windowed ? layer.channels : 0) {}

  Status pack(PackedWeights& weights);
  void run(const LayerShape& shape, const void* input, const void* other, void* output,
           pthreadpool_t threads) override;
  KernelUse use(const LayerShape& shape) const override {
    const std::string node = node_name(layer_, types_);
    if (layer_.windowed) {
      return {node, way_.windows->name, "KleidiAI", way_.windows->feature};
    }
    const FloatKernel& kernel = kernel_for(shape);
    return {node, kernel.name, "KleidiAI", kernel.feature};
  }

 private:
  struct Work {
    const FloatWay& way;
    const FloatKernel& kernel;
    const MatrixLayer& layer;
    const LayerShape& shape;
    std::size_t rows;  // of a batch
    const Element* input;
    const Element* other;
    std::uint8_t* packed;  // rows, and the bytes of a batch of them
    std::size_t packed_size;
    const std::uint8_t* weights;  // the same of weights
    std::uint8_t* given;
    std::size_t weights_size;
    const Element* zeros;
    Element* output;
  };

  static void pack_rows(void* context, std::size_t batch, std::size_t row, std::size_t count);
  static void pack_given(void* context, std::size_t batch, std::size_t column, std::size_t count);
  static void multiply(void* context, std::size_t batch, std::size_t row, std::size_t column,
                       std::size_t rows, std::size_t columns);

  const FloatKernel& kernel_for(const LayerShape& shape) const {
    return shape.rows == shape.batches ? way_.one : way_.many;
  }
  void run_windowed(const LayerShape& shape, const void* input, void* output, pthreadpool_t threads);
  Element weight(std::size_t batch, std::size_t output, std::size_t k) const;
  Element bias(std::size_t output) const;
  void pack_batch(std::size_t batch, std::uint8_t* memory) const;

  const FloatWay& way_;
  const char* types_;
  std::vector<Element> padding_;     // a pixel of zeros
  std::vector<Element> zeros_;       // the bias of a product of two inputs
  std::vector<std::uint8_t> given_;  // its packed second input
};

template <typename Element>
Element FloatLayer<Element>::weight(std::size_t batch, std::size_t output, std::size_t k) const {
  const std::size_t at =
      batch * layer_.depth * layer_.outputs + output * layer_.along_outputs + k * layer_.along_depth;
  return layer_.wide_weights ? static_cast<Element>(static_cast<const float*>(layer_.weights)[at])
                             : static_cast<const Element*>(layer_.weights)[at];
}

template <typename Element>
Element FloatLayer<Element>::bias(std::size_t output) const {
  if (layer_.bias == nullptr) {
    return 0;
  }
  return layer_.wide_bias ? static_cast<Element>(static_cast<const float*>(layer_.bias)[output])
                          : static_cast<const Element*>(layer_.bias)[output];
}

template <typename Element>
void FloatLayer<Element>::pack_batch(std::size_t batch, std::uint8_t* memory) const {
  const WeightPacking& packing = way_.packing;
  const std::size_t step = layer_.windowed ? way_.windows->n_step() : packing.n_step();
  std::vector<Element> block(layer_.depth * step);
  std::vector<Element> biases(step);
  for (std::size_t first = 0; first < layer_.outputs; first += step) {
    const std::size_t count = std::min(step, layer_.outputs - first);
    for (std::size_t n = 0; n < count; ++n) {
      biases[n] = bias(first + n);
      for (std::size_t k = 0; k < layer_.depth; ++k) {
        block[k * count + n] = weight(batch, first + n, k);
      }
    }
    const std::size_t stride = count * sizeof(Element);
    if (layer_.windowed) {
      const std::size_t chunks = chunks_of(layer_);
      way_.windows->pack(count, chunks, layer_.channels, stride, block.data(), biases.data(),
                         memory + way_.windows->rhs_offset(first, chunks, layer_.channels));
    } else {
      packing.run(1, count, layer_.depth, step, packing.kr, 1, stride, block.data(), biases.data(), nullptr,
                  memory + packing.offset(first, layer_.depth), 0, nullptr);
    }
  }
}

template <typename Element>
Status FloatLayer<Element>::pack(PackedWeights& weights) {
  if (layer_.given) {
    return {};
  }
  const WindowKernel* windows = way_.windows;
  const std::size_t size = layer_.windowed
                               ? windows->rhs_size(layer_.outputs, chunks_of(layer_), layer_.channels)
                               : way_.packing.size(layer_.outputs, layer_.depth);
  const auto write = [this, size](std::uint8_t* memory) {
    for (std::size_t batch = 0; batch < layer_.batches; ++batch) {
      pack_batch(batch, memory + batch * size);
    }
  };
  return layer_.windowed ? pack_once(way_.window_seed, windows->n_step(), size, weights, write)
                         : pack_once(way_.seed, way_.packing.n_step(), size * layer_.batches, weights, write);
}

template <typename Element>
void FloatLayer<Element>::pack_rows(void* context, std::size_t batch, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const RowPacking& packing = work.way.rows;
  const std::size_t depth = work.shape.depth;
  const std::size_t mr = work.kernel.mr();
  packing.run(count, depth, mr, packing.kr, 1, 0, work.input + (batch * work.rows + row) * depth,
              depth * sizeof(Element),
              work.packed + batch * work.packed_size + packing.offset(row, depth, mr, packing.kr, 1));
}

template <typename Element>
void FloatLayer<Element>::pack_given(void* context, std::size_t batch, std::size_t column,
                                     std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const WeightPacking& packing = work.way.packing;
  const std::size_t depth = work.shape.depth;
  const std::size_t outputs = work.shape.outputs;
  packing.run(1, count, depth, packing.n_step(), packing.kr, 1, outputs * sizeof(Element),
              work.other + batch * depth * outputs + column, work.zeros, nullptr,
              work.given + batch * work.weights_size + packing.offset(column, depth), 0, nullptr);
}

template <typename Element>
void FloatLayer<Element>::multiply(void* context, std::size_t batch, std::size_t row, std::size_t column,
                                   std::size_t rows, std::size_t columns) {
  const auto& work = *static_cast<const Work*>(context);
  const FloatKernel& kernel = work.kernel;
  const std::size_t depth = work.shape.depth;
  const std::size_t stride = work.shape.outputs * sizeof(Element);
  void* output = reinterpret_cast<std::uint8_t*>(work.output) + batch * work.rows * stride +
                 kernel.dst_offset(row, column, stride);
  const std::uint8_t* weights = work.weights + batch * work.weights_size + kernel.rhs_offset(column, depth);
  if (kernel.run_packed != nullptr) {
    kernel.run_packed(rows, columns, depth,
                      work.packed + batch * work.packed_size + kernel.lhs_offset(row, depth), weights, output,
                      stride, sizeof(Element), work.layer.min, work.layer.max);
  } else {
    kernel.run(rows, columns, depth, work.input + (batch * work.rows + row) * depth, depth * sizeof(Element),
               weights, output, stride, sizeof(Element), work.layer.min, work.layer.max);
  }
}

template <typename Element>
void FloatLayer<Element>::run_windowed(const LayerShape& shape, const void* input, void* output,
                                       pthreadpool_t threads) {
  const WindowKernel& kernel = *way_.windows;
  const std::size_t chunks = chunks_of(layer_);
  const std::size_t stride = layer_.outputs * sizeof(Element);
  const auto multiply_tile = [&](std::size_t row, const std::uint8_t* packed, std::size_t rows,
                                 std::size_t column, std::size_t columns) {
    kernel.run(rows, columns, chunks, layer_.channels, packed,
               packed_ + kernel.rhs_offset(column, chunks, layer_.channels),
               static_cast<std::uint8_t*>(output) + kernel.dst_offset(row, column, stride), stride,
               layer_.min, layer_.max);
  };
  run_windows({kernel.gathering, layer_, shape, static_cast<const std::uint8_t*>(input), sizeof(Element),
               padding_.data(), kernel.n_step(), multiply_tile},
              &rows_, threads);
}

template <typename Element>
void FloatLayer<Element>::run(const LayerShape& shape, const void* input, const void* other, void* output,
                              pthreadpool_t threads) {
  if (shape.rows == 0 || shape.outputs == 0) {
    return;
  }
  if (layer_.windowed) {
    run_windowed(shape, input, output, threads);
    return;
  }
  const FloatKernel& kernel = kernel_for(shape);
  const std::size_t rows = shape.rows / shape.batches;
  Work work{way_,
            kernel,
            layer_,
            shape,
            rows,
            static_cast<const Element*>(input),
            static_cast<const Element*>(other),
            nullptr,
            0,
            packed_,
            nullptr,
            way_.packing.size(shape.outputs, shape.depth),
            nullptr,
            static_cast<Element*>(output)};
  if (layer_.given) {
    given_.resize(work.weights_size * shape.batches);
    zeros_.resize(way_.packing.n_step());
    work.given = given_.data();
    work.weights = given_.data();
    work.zeros = zeros_.data();
    pthreadpool_parallelize_2d_tile_1d(threads, pack_given, &work, shape.batches, shape.outputs,
                                       way_.packing.n_step(), kPoolFlags);
  }
  if (kernel.run_packed != nullptr) {
    work.packed_size = way_.rows.size(rows, shape.depth, kernel.mr(), way_.rows.kr, 1);
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

template <std::size_t N>
bool has_float(const FloatWay (&ways)[N], const MatrixLayer& layer) {
  const FloatWay* way = best_of(ways);
  return way != nullptr && (!layer.windowed || way->windows != nullptr);
}

// A layer with its weights packed, if they are there already.
template <typename Element, std::size_t N>
KaiMade make_float(const FloatWay (&ways)[N], const MatrixLayer& layer, const char* types,
                   PackedWeights& weights) {
  auto made = std::make_unique<FloatLayer<Element>>(layer, *best_of(ways), types);
  const Status packed = made->pack(weights);
  return packed.ok() ? KaiMade(std::move(made)) : packed;
}

}  // namespace slipway::lean
