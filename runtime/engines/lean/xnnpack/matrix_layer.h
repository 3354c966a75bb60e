// Nodes of a delegate's graph that are products of rows by a matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lean/xnnpack/rules.h"

namespace slipway::lean {

// What it computes with, as KleidiAI and XNNPACK name it.
enum class Arithmetic : std::uint8_t {
  kDynamic8,  // qp8_f32_qc8w: float32 rows, each quantized by itself; int8 weights with a scale a channel
  kHalf,      // pf16: all of it float16
  kSingle,    // pf32: all of it float32
  kStatic8,   // pqs8_qc8w: int8 with one scale and zero point; int8 weights with a scale a channel
};

enum class Operation : std::uint8_t { kFullyConnected, kConvolution, kBatchMatrixMultiply };

struct MatrixLayer {
  Arithmetic arithmetic = Arithmetic::kHalf;
  Operation operation = Operation::kFullyConnected;
  std::size_t depth = 0;
  std::size_t outputs = 0;
  std::size_t rows = 0;     // as exported
  std::size_t batches = 1;  // with weights of their own, one after the other; rows are divided among them
  std::uint32_t input = 0;  // indices among the arguments
  std::uint32_t output = 0;
  // A product of two inputs: the weights are an argument, too, of depth x outputs a batch, and batches and
  // outputs are as exported.
  bool given = false;
  std::uint32_t given_value = 0;  // the index of this value
  std::uint32_t other = 0;        // index among the arguments
  // A convolution whose rows are windows of several pixels, or of not every pixel: depth is that of a window.
  bool windowed = false;
  std::size_t channels = 0;  // of a pixel
  Window down;               // windows along the height
  Window across;             // and along the width
  // Weight (output n, depth k) of batch b is element b * depth * outputs + n * along_outputs + k *
  // along_depth.
  const void* weights = nullptr;
  std::size_t along_outputs = 0;
  std::size_t along_depth = 1;
  bool wide_weights = false;  // of kHalf: stored as float32, as is the bias
  bool wide_bias = false;
  const void* bias = nullptr;  // nullptr: none. float32 of kDynamic8, int32 of kStatic8
  std::vector<float> scales;   // of int8 weights, one an output
  float min = 0;               // of the output, as real numbers
  float max = 0;
  float input_scale = 1;  // of kStatic8
  float output_scale = 1;
  std::int32_t input_zero = 0;
  std::int32_t output_zero = 0;
};

// The layer that `node` is, if it is one: a fully-connected node, a convolution (every pixel or window a row)
// or a batched product. What XNNPACK computes otherwise is none: groups, a depth that kernels do not take,
// dynamic quantization of several rows together.
std::optional<MatrixLayer> matrix_layer(const GraphCheck& check, const GraphNode& node);

// Divides a delegate's graph between XNNPACK and layers that run on kernels it does not have.

// What a value is to a part of a graph.
struct PartValue {
  std::uint32_t flags = 0;        // XNN_VALUE_FLAG_EXTERNAL_INPUT, ..._OUTPUT or nothing
  std::uint32_t external_id = 0;  // with one of these flags: its index among the arguments
};

// Nodes that XNNPACK runs as a graph of their own.
struct GraphPart {
  std::set<std::size_t> nodes;
  std::map<std::uint32_t, PartValue> values;  // by their indices; constants are in it
  std::uint32_t externals = 0;
};

// One or the other, in the order in which they run.
struct Stage {
  bool is_layer = false;
  GraphPart part;
  MatrixLayer layer;
};

// A value that one stage makes and another takes; its index among the arguments is behind the call's own.
struct Crossing {
  xnn_datatype datatype;
  Dims dims;             // as exported
  std::size_t made = 0;  // the stage that makes it
  std::size_t last = 0;  // the last one that takes it
};

// A node's result that has a form outside of XNNPACK.
struct Probe {
  std::size_t stage = 0;
  std::size_t node = 0;
  std::uint32_t external_id = 0;  // its index among the arguments
};

struct Split {
  std::vector<Stage> stages;
  std::vector<Crossing> crossings;
  std::vector<Probe> probes;
};

// A split with no stages when no layer qualifies, or when what would have to be handed over has no form
// outside of XNNPACK.
// `has_kernel`: whether there is one for such a layer.
// `apart`: each node of XNNPACK's is a graph of its own, as far as its results have a form outside of it.
using HasKernel = bool (*)(const MatrixLayer&);
Split split_graph(const GraphCheck& check, HasKernel has_kernel, bool apart = false);

}  // namespace slipway::lean
