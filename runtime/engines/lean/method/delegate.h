// What the program delegated to XNNPACK: one graph of XNNPACK's, or several with layers on other kernels
// between.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lean/kleidiai/layer.h"
#include "lean/xnnpack/matrix_layer.h"
#include "lean/xnnpack/xnn_delegate.h"

namespace slipway::lean {

// What a node of a delegate's graph gave.
struct NodeValue {
  std::string kind;
  std::size_t node = 0;
  Tensor tensor;
};

// What a method does, one after the other.
inline std::vector<const pte::Instruction*> instructions_of(const pte::ExecutionPlan& plan) {
  const bool some = plan.chains() != nullptr && plan.chains()->size() != 0;
  const auto* stored = some ? plan.chains()->Get(0)->instructions() : nullptr;
  return stored == nullptr ? std::vector<const pte::Instruction*>()
                           : std::vector<const pte::Instruction*>(stored->begin(), stored->end());
}

class Delegate {
 public:
  // As XnnDelegate::load. `values`: run node by node, and keep what each gives.
  static Result<std::unique_ptr<Delegate>> load(const XnnContext& context, PackedWeights& weights,
                                                XnnPayload payload, const std::string& what, bool profile,
                                                bool values);

  // Whether the argument at that index of a call is a result.
  bool produces(std::size_t argument) const { return check_->produces(argument); }

  Status execute(const std::vector<TensorView*>& arguments);
  // Where a call with so many arguments will look.
  void add_lines(std::size_t arguments, Lines* lines);
  std::vector<OperatorTime> times() const;
  // What the graph's nodes gave in the last execution; empty unless loaded with `values`.
  const std::vector<NodeValue>& values() const { return values_; }
  std::vector<KernelUse> kernels() const;
  // What this processor made the delegate do otherwise; nothing where it does as exported.
  std::optional<Fallback> fallback() const;

 private:
  struct Part {
    std::unique_ptr<XnnDelegate> graph;  // this one
    std::unique_ptr<KaiLayer> layer;     // or that
    LayerShape shape;                    // of the layer, in the last execution or as exported
    std::uint64_t nanoseconds = 0;
  };
  // Memory of crossings, one after the other.
  struct Block {
    std::vector<std::uint8_t> memory;
    std::size_t size = 0;
    std::size_t last = 0;  // the stage after which it is free
  };

  Delegate(const XnnContext& context, std::string what, bool profile, bool values)
      : context_(context), what_(std::move(what)), profile_(profile), keeps_values_(values) {}
  Status make_parts(const Split& split, PackedWeights& weights);
  Status make_crossings(const Split& split);
  void allocate_crossings(const Split& split);
  // The sizes of a layer's execution, from its tensors; false if these do not go together.
  static bool read_shape(const MatrixLayer& layer, const TensorView& input, const TensorView* other,
                         LayerShape* shape);
  Status run_layer(Part* part);
  void keep_values(std::size_t stage);
  // Whether the last call had the same tensors in the same places: all that it checked is so again.
  bool calls_before(const std::vector<TensorView*>& arguments) const;

  const XnnContext& context_;
  std::string what_;
  bool profile_;
  bool keeps_values_;
  std::unique_ptr<XnnPayload> payload_;
  std::unique_ptr<GraphCheck> check_;  // of the whole graph
  std::vector<Part> parts_;
  std::vector<TensorView> crossings_;
  std::vector<Block> blocks_;
  std::vector<TensorView*> arguments_;  // the call's, then the crossings
  std::vector<TensorView> calls_;       // those of the last call; none after one that failed
  std::vector<Probe> probes_;
  std::vector<NodeValue> values_;
};

}  // namespace slipway::lean
