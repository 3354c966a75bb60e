// Runs graphs on XNNPACK.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/data/data_store.h"
#include "lean/data/evalue.h"
#include "lean/xnnpack/graph_builder.h"
#include "lean/xnnpack/kernel_choices.h"
#include "lean/xnnpack/memory_plan.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/rules.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

inline constexpr char kXnnpackBackend[] = "XnnpackBackend";

// A part of a delegate's work and how long it took.
struct OperatorTime {
  std::string name;
  std::uint64_t nanoseconds = 0;
};

// Kernels that a run does without.
struct KernelLimits {
  std::vector<std::string> unused_features;  // by the names of known_features()
  bool kleidiai = true;                      // false: none of KleidiAI's
};

// What all graphs of a process share: XNNPACK itself, threads, memory for intermediate values.
class XnnContext {
 public:
  XnnContext() = default;
  XnnContext(const XnnContext&) = delete;
  XnnContext& operator=(const XnnContext&) = delete;
  ~XnnContext();

  // Before start(); without it, kernels are chosen by all that the processor has.
  void limit(KernelLimits limits) { limits_ = std::move(limits); }
  // Initialises XNNPACK. Fails on a processor below its floor.
  Status start();

  // Makes the threads that graphs loaded from now on use; returns how many.
  Result<unsigned> set_threads(unsigned count);
  // The same with threads of somebody else, who keeps them for as long as this lives; nullptr: the caller's.
  void use_threads(pthreadpool_t threads);

  pthreadpool_t threads() const { return threads_; }
  // XNNPACK asks for it, and never puts anything there: values lie in memory().
  xnn_workspace_t workspace() const { return workspace_; }
  const std::shared_ptr<WorkMemory>& memory() const { return memory_; }
  const KernelLimits& limits() const { return limits_; }
  // What the limits meant on this processor; known after start().
  const UnusedFeatures& unused() const { return unused_; }

 private:
  void end_threads();

  KernelLimits limits_;
  UnusedFeatures unused_;
  bool started_ = false;
  bool own_threads_ = true;
  pthreadpool_t threads_ = nullptr;
  xnn_workspace_t workspace_ = nullptr;
  std::shared_ptr<WorkMemory> memory_ = std::make_shared<WorkMemory>();
};

// Memory that a call looks into first, by lines of the cache.
using Lines = std::vector<const std::uint8_t*>;
void add_lines(const void* from, std::size_t size, Lines* lines);

class XnnDelegate {
 public:
  // Builds the graph, or a part of it, and packs its weights into `weights`. The check, and the payload that
  // it read, must outlive the delegate.
  static Result<std::unique_ptr<XnnDelegate>> load(const XnnContext& context, const GraphCheck& check,
                                                   PackedWeights& weights, const std::string& what,
                                                   bool profile, const GraphPart* part = nullptr);

  // Runs the graph. `arguments` are the call's values, found by the ids the graph gives its inputs and
  // outputs, and accepted by the graph's check; outputs get the shapes that follow from the inputs'. `whole`:
  // the check, when the graph is all of what was checked.
  Status execute(const std::vector<TensorView*>& arguments, const GraphCheck* whole = nullptr);

  // The same once more, with tensors of the same shapes in the same places as the last time.
  Status repeat(const std::vector<TensorView*>& arguments, const GraphCheck* whole);

  // Where its next execution looks first.
  void add_lines(Lines* lines) const;

  // The kernels of its layers, for the shapes it has now: those of the last execution, or the exporter's.
  std::vector<KernelUse> kernels() const;

  // Times of the last execution, in order; empty without profiling.
  std::vector<OperatorTime> times() const;

  // Whether the graph computes in float32 what it was exported to compute in float16.
  bool widened() const { return graph_->widened(); }

 private:
  struct Bound {
    External external;
    Dims dims;  // as XNNPACK got them last
    void* data = nullptr;
    std::vector<float> wide;  // the elements, for XNNPACK, of a value that is widened
  };

  Status prepare(const XnnContext& context, PackedWeights& weights, const GraphPart* part, bool widen);
  Status fault(const char* step, xnn_status status) const;
  Status reshape_inputs(const std::vector<TensorView*>& arguments, bool* changed);
  Status resize_outputs(const std::vector<TensorView*>& arguments, const GraphCheck* whole);
  Status bind(const std::vector<TensorView*>& arguments, bool reshaped);
  Status invoke(const std::vector<TensorView*>& arguments);

  std::string what_;
  const GraphCheck* check_ = nullptr;
  std::unique_ptr<GraphBuilder> graph_;
  std::unique_ptr<xnn_runtime, XnnDeleter<xnn_delete_runtime>> runtime_;
  std::vector<Bound> bound_;
  MemoryPlan plan_;
  std::shared_ptr<WorkMemory> memory_;
  std::size_t memory_version_ = 0;
  std::size_t threads_ = 1;
  bool profile_ = false;
  bool shaped_ = false;
};

}  // namespace slipway::lean
