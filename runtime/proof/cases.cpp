#include "run.h"

namespace proof {
namespace {

using Kind = Layer::Kind;

Layer FullyConnected(std::size_t rows, std::size_t inputs, std::size_t outputs) {
  Layer layer;
  layer.batch = rows;
  layer.inputs = inputs;
  layer.outputs = outputs;
  return layer;
}

// Two images of 7 x 9; padding keeps the size when the stride is 1.
Layer Convolution(std::size_t kernel, std::size_t stride, std::size_t inputs, std::size_t outputs,
                  std::size_t groups = 1) {
  Layer layer;
  layer.kind = Kind::kConvolution;
  layer.batch = 2;
  layer.height = 7;
  layer.width = 9;
  layer.inputs = inputs;
  layer.outputs = outputs;
  layer.kernel = kernel;
  layer.stride = stride;
  layer.padding = kernel / 2;
  layer.groups = groups;
  return layer;
}

Layer Depthwise(std::size_t kernel, std::size_t stride, std::size_t channels) {
  Layer layer = Convolution(kernel, stride, channels, channels, channels);
  layer.kind = Kind::kDepthwise;
  return layer;
}

Layer Clamped(Layer layer, float least, float most) {
  layer.least = least;
  layer.most = most;
  return layer;
}

const char* Prefix(Kind kind) {
  if (kind == Kind::kFullyConnected) return "fc";
  return kind == Kind::kDepthwise ? "dwconv" : "conv";
}

std::string OperatorName(Kind kind, const std::string& types) {
  if (kind == Kind::kFullyConnected) return "Fully Connected (NC, " + types + ")";
  return "Convolution (NHWC, " + types + ")";
}

Expectation ExpectHalf(const Cpu& cpu, Half half, Kind kind, const std::string& half_op,
                       const std::string& single_op, const std::string& packed_op) {
  const bool packed = cpu.kleidiai_sme2 && kind == Kind::kFullyConnected;
  if (half == Half::kNo) return {xnn_status_success, packed ? packed_op : single_op, ""};
  if (half == Half::kHint) {
    // XNNPACK packs single-precision inputs for SME2 while the graph is defined, and cannot turn it to half
    // after.
    if (packed) return {xnn_status_success, packed_op, ""};
    return {xnn_status_success, cpu.half_arithmetic ? half_op : single_op, ""};
  }
  if (!cpu.half_arithmetic && !cpu.half_emulated) {
    return {xnn_status_unsupported_hardware, "", "no half-precision arithmetic, and none emulated"};
  }
  if (packed) {
    return {xnn_status_unsupported_parameter, "",
            "XNNPACK packs the inputs for SME2 in single precision and then refuses half"};
  }
  return {xnn_status_success, half_op, ""};
}

Case FloatCase(const Layer& layer, Half half) {
  const std::string type = half == Half::kNo ? "f32" : half == Half::kHint ? "f16_hint" : "f16_force";
  const Kind kind = layer.kind;
  return {std::string(Prefix(kind)) + "_" + type + "_" + layer.ShapeName(),
          [=] { return FloatProblem(layer, half); },
          [=](const Cpu& cpu) {
            return ExpectHalf(cpu, half, kind, OperatorName(kind, "F16"), OperatorName(kind, "F32"),
                              "Pack LH (X32)");
          }};
}

Case SoftmaxCase(std::size_t rows, std::size_t channels, Half half) {
  const std::string type = half == Half::kNo ? "f32" : half == Half::kHint ? "f16_hint" : "f16_force";
  return {"softmax_" + type + "_m" + std::to_string(rows) + "_n" + std::to_string(channels),
          [=] { return SoftmaxProblem(rows, channels, half); },
          [=](const Cpu& cpu) {
            return ExpectHalf(cpu, half, Kind::kConvolution, "Softmax (NC, F16)", "Softmax (NC, F32)", "");
          }};
}

Case StaticCase(const Layer& layer, bool per_channel) {
  const bool fully_connected = layer.kind == Kind::kFullyConnected;
  const std::string types = !per_channel ? "QS8" : fully_connected ? "QS8, QC8W" : "QC8";
  const std::string name = std::string(Prefix(layer.kind)) + (per_channel ? "_qs8_qc8w_" : "_qs8_");
  return {
      name + layer.ShapeName(), [=] { return StaticProblem(layer, per_channel); },
      [op = OperatorName(layer.kind, types)](const Cpu&) { return Expectation{xnn_status_success, op, ""}; }};
}

// The name of a 4-bit case says its zero point where that is not 8, and its block where that is not 32.
Case DynamicCase(const Layer& layer, Weights weights, bool for_kleidiai = false, int zero_point = 8,
                 std::size_t block = 32) {
  const bool wide = weights == Weights::kInt8PerChannel, blocks = weights == Weights::kInt4PerBlock;
  const std::string stored = wide ? "QC8W" : blocks ? "QB4W" : "QC4W";
  std::string name = std::string(Prefix(layer.kind)) + (for_kleidiai ? "_qp8" : "_qd8") +
                     (wide     ? "_qc8w_"
                      : blocks ? "_qb4w_"
                               : "_qc4w_") +
                     layer.ShapeName();
  if (!wide && zero_point != 8) name += "_signed";
  if (blocks && block != 32) name += "_b" + std::to_string(block);
  return {
      name,
      [=] { return DynamicProblem(layer, weights, wide ? 0 : zero_point, blocks ? block : 0, for_kleidiai); },
      [=](const Cpu& cpu) {
        const bool kleidiai = for_kleidiai && cpu.kleidiai_dotprod;
        const std::string op = OperatorName(layer.kind, (kleidiai ? "QP8, F32, " : "QD8, F32, ") + stored);
        return Expectation{xnn_status_success, op, ""};
      }};
}

}  // namespace

std::vector<Case> AllCases() {
  constexpr Weights kInt8 = Weights::kInt8PerChannel;
  constexpr Weights kInt4 = Weights::kInt4PerChannel;
  constexpr Weights kBlocks = Weights::kInt4PerBlock;
  return {
      FloatCase(FullyConnected(1, 67, 33), Half::kNo),
      FloatCase(FullyConnected(13, 128, 50), Half::kNo),
      FloatCase(Clamped(FullyConnected(33, 300, 71), -2, 3), Half::kNo),
      FloatCase(FullyConnected(9, 67, 33), Half::kHint),
      FloatCase(FullyConnected(1, 64, 33), Half::kForce),
      FloatCase(FullyConnected(13, 130, 50), Half::kForce),
      StaticCase(FullyConnected(1, 67, 33), false),
      StaticCase(FullyConnected(13, 128, 50), false),
      StaticCase(FullyConnected(1, 67, 33), true),
      StaticCase(FullyConnected(13, 128, 50), true),
      DynamicCase(FullyConnected(1, 67, 33), kInt8),
      DynamicCase(FullyConnected(13, 128, 50), kInt8),
      DynamicCase(FullyConnected(1, 70, 33), kInt4),
      DynamicCase(FullyConnected(13, 128, 50), kInt4),
      DynamicCase(FullyConnected(9, 96, 41), kInt4, false, 0),
      DynamicCase(FullyConnected(1, 64, 33), kBlocks),
      DynamicCase(FullyConnected(13, 192, 50), kBlocks),
      DynamicCase(FullyConnected(9, 128, 41), kBlocks, false, 8, 64),
      DynamicCase(FullyConnected(1, 64, 33), kInt4, true),
      DynamicCase(FullyConnected(13, 128, 50), kInt4, true),
      DynamicCase(FullyConnected(1, 64, 33), kBlocks, true),
      DynamicCase(FullyConnected(17, 192, 50), kBlocks, true),
      FloatCase(Convolution(1, 1, 37, 29), Half::kNo),
      FloatCase(Clamped(Convolution(3, 1, 19, 23), 0, 6), Half::kNo),
      FloatCase(Convolution(3, 2, 3, 17), Half::kNo),
      FloatCase(Convolution(3, 1, 10, 14, 2), Half::kNo),
      FloatCase(Depthwise(3, 1, 35), Half::kNo),
      FloatCase(Clamped(Depthwise(3, 2, 24), 0, 6), Half::kNo),
      FloatCase(Depthwise(5, 1, 13), Half::kNo),
      FloatCase(Convolution(3, 1, 19, 23), Half::kHint),
      FloatCase(Convolution(1, 1, 37, 29), Half::kForce),
      FloatCase(Convolution(3, 1, 19, 23), Half::kForce),
      FloatCase(Depthwise(3, 1, 35), Half::kForce),
      StaticCase(Convolution(1, 1, 37, 29), false),
      StaticCase(Convolution(3, 1, 19, 23), false),
      StaticCase(Depthwise(3, 1, 35), false),
      StaticCase(Convolution(1, 1, 37, 29), true),
      StaticCase(Convolution(3, 2, 3, 17), true),
      StaticCase(Depthwise(3, 1, 35), true),
      StaticCase(Depthwise(5, 1, 13), true),
      DynamicCase(Convolution(1, 1, 37, 29), kInt8),
      DynamicCase(Convolution(3, 1, 19, 23), kInt8),
      SoftmaxCase(1, 7, Half::kNo),
      SoftmaxCase(12, 1000, Half::kNo),
      SoftmaxCase(12, 100, Half::kHint),
      SoftmaxCase(3, 129, Half::kForce),
  };
}

}  // namespace proof
