// The interface every engine implements: load, describe, set inputs, execute, outputs, profile, capabilities.
//
// The runner calls, in this order: set_threads, describe, load, then set_inputs + execute as often as asked,
// then outputs and profile. Whatever a runtime underneath throws or aborts with stays inside the engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// Where a value's shape stands: fixed, at most the shape given, or not known before execution.
enum class Dynamism : std::uint8_t { kStatic, kBounded, kUnbounded };

// The sizes that a dimension may have.
struct SizeRange {
  static constexpr std::int64_t kAny = -1;  // as `most`: there is no bound

  std::int64_t least = 0;
  std::int64_t most = kAny;

  bool holds(std::int64_t size) const { return size >= least && (most == kAny || size <= most); }
};

// One input or output of a method, as the program declares it.
struct ValueSpec {
  std::string kind;  // "tensor", "int", "double", "bool", "string", "none", "complex32 tensor" (which no file
                     // can hold), or another of the engine's words
  DType dtype = DType::kUnknown;
  Shape shape;
  Dynamism dynamism = Dynamism::kStatic;
  // One a dimension, where an .onnx fixes some and leaves others free; else empty. size_ranges() has all.
  std::vector<SizeRange> ranges;
  // For "int", "double" and "bool" inputs: the value the program was exported with.
  Tensor exported;
};

// The sizes that each dimension of a tensor may have. A .pte says of a whole tensor that its sizes change
// within bounds, and not of which of them: then every one of them goes from 0 to its bound.
std::vector<SizeRange> size_ranges(const ValueSpec& spec);

// Whether a tensor of that shape has as many dimensions, each of a size that it may have.
bool fits(const ValueSpec& spec, const Shape& shape);

// A node (one use of an operator) of a graph whose nodes are divided between providers.
struct NodeInfo {
  std::string name;
  std::string op;
  std::string provider;
};

// What computes a layer on this processor.
struct KernelUse {
  std::string node;  // "Fully Connected (NC, F32) GEMM #1 @0": the name it has in a profile
  std::string kernel;
  std::string library;  // who wrote the kernel: "XNNPACK", "KleidiAI"
  std::string feature;  // of the processor, for which it was chosen: "neondot"; "scalar" for none
};

// What the engine did otherwise than the program says, because this processor cannot.
struct Fallback {
  std::string where;   // "Delegate 0 of method forward"
  std::string wanted;  // "float16"
  std::string used;    // "float32"
  std::string why;
};

struct MethodInfo {
  std::string name;
  std::vector<ValueSpec> inputs;
  std::vector<ValueSpec> outputs;
  std::vector<std::string> backends;   // sorted, each once
  std::vector<std::string> operators;  // sorted, each once, as registered: "aten::add.out"
  // Sorted, each once: operators called with tensors of complex types or of none of DType's, with the type:
  // "aten::abs.out of complex64".
  std::vector<std::string> other_types;
  // Sorted, each once, from engines that tell: types of data that its delegates compute with
  // ("xnnpack::f32"), for which a selective build links kernels. Empty: unknown, or none.
  std::vector<std::string> kernel_types;
  // Names of the weights that the program does not hold itself: they come from LoadOptions::data_path.
  std::vector<std::string> external_weights;
  // Bytes that it has planned for intermediate values, state, inputs and outputs, as the file says.
  std::uint64_t planned_bytes = 0;
  // What computes its layers here, from engines that tell.
  std::vector<KernelUse> kernels;
};

struct ProgramInfo {
  std::uint64_t size = 0;
  std::uint64_t version = 0;
  // Versions of the operator sets, by domain ("ai.onnx"); empty for programs without any.
  std::vector<std::pair<std::string, std::int64_t>> opsets;
  // Files beside the program that hold weights of it, as it names them.
  std::vector<std::string> data_files;
  std::vector<MethodInfo> methods;
};

struct EngineInfo {
  std::string name;
  std::string version;
};

struct Capabilities {
  std::vector<std::string> backends;   // sorted, each once
  std::vector<std::string> operators;  // sorted, each once
  bool kleidiai = false;
  // False: the runtime does not tell which operators it has, so `operators` is empty and proves nothing.
  bool lists_operators = true;
  // Types of data that kernels of delegates were linked for, sorted; empty: all.
  std::vector<std::string> kernel_types = {};  // an initializer, so that engines may leave it out
  // True: built for some programs only, so what is lacking may be had by building it for more.
  bool selective = false;
};

// Settings that only some engines have; what is left as it is here is the engine's default.
struct EngineOptions {
  std::string provider;
  unsigned ort_threads = 0;
  bool ort_spinning = false;
  bool trust_provider = false;  // give the provider what it is known to get wrong, too
  std::string weights_cache;    // a file that keeps packed weights for the next load
  std::string kleidiai;         // "on" or "off"; empty: on where it is
  // Of the processor, by name: kernels that want one of them are left unused.
  std::vector<std::string> unused_features;
  unsigned max_jumps = 0;  // jumps backwards in one execution; 0: the engine's own limit
};

// Where the nodes ran, and what could be done about it.
struct Placement {
  std::vector<NodeInfo> nodes;
  std::vector<std::string> hints;
};

// What became of the file that keeps packed weights.
struct WeightsCacheInfo {
  std::string path;
  // "used": all that it could have was in it. "made", "extended": it was written. "none": there is none now.
  std::string state;
  std::string why;             // why it was made, or is not there
  std::uint64_t bytes = 0;     // of the file
  std::uint64_t found = 0;     // blocks of packed weights that were found in it
  double packing_load_ms = 0;  // of the load that packed what is in it; 0 where this one did
};

// Weights as the engine keeps them in memory, where it packs them once for all methods that use them.
struct WeightsInfo {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t shared = 0;        // how often what was packed already was used again
  std::uint64_t shared_bytes = 0;  // and the memory that this saved
  std::uint64_t packed = 0;        // blocks that this process packed
  std::optional<WeightsCacheInfo> cache;
};

// One line of a profile: an operator's executions, summed up.
struct ProfileRow {
  std::string name;
  std::string op;
  std::string provider;
  std::uint64_t count = 0;
  double total_ms = 0;
  std::vector<double> times_ms = {};  // of each call
};

// Sums a profile up.
class ProfileRows {
 public:
  void add(const std::string& name, const std::string& op, const std::string& provider, double ms);
  // The costliest first.
  std::vector<ProfileRow> sorted() const;

 private:
  std::map<std::tuple<std::string, std::string, std::string>, ProfileRow> rows_;
};

struct LoadOptions {
  std::string model_path;
  std::string data_path;  // weights stored apart from the program; empty when there are none
  std::string method;
  std::vector<std::string> also;  // methods that are made ready besides
  bool profile = false;
  bool values = false;  // with `profile`: also what the last execution's instructions gave
  // One an input: sizes that the program leaves open may be taken as fixed to these. Empty: they stay open.
  std::vector<Shape> shapes = {};
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual EngineInfo info() const = 0;
  // What is registered in this process.
  virtual Capabilities capabilities() const = 0;

  // Takes settings over, before anything else is called. This one refuses those of other engines (kUsage).
  virtual Status configure(const EngineOptions& options);
  // The settings in effect after load(), for the result; name and value.
  virtual std::vector<std::pair<std::string, std::string>> settings() const { return {}; }

  // Sets the number of threads for all later work; returns the number in effect.
  virtual Result<unsigned> set_threads(unsigned count) = 0;

  // Reads what the program declares, and runs nothing. Checks the whole file (kFile when it is damaged).
  virtual Result<ProgramInfo> describe(const std::string& model_path) = 0;

  // Finds out more about a described program by preparing it as far as needed: operators that the runtime
  // lacks (MethodInfo::operators keeps all, `missing` gets those), or that it cannot be used at all.
  virtual Status examine(const std::string& /*model_path*/, std::vector<std::string>* /*missing*/) {
    return {};
  }

  // Loads the program and makes one method ready to run, and others besides (kUsage where there is only one).
  virtual Status load(const LoadOptions& options) = 0;

  // Of the methods that were loaded, the one that the functions below mean from now on; LoadOptions::method
  // at first. kUsage from engines that run only that one.
  virtual Status choose(const std::string& method);

  // Gives the method its inputs for the next execute(). The tensors must outlive it.
  virtual Status set_inputs(const std::vector<Tensor>& inputs) = 0;
  // Runs the method once; this call alone is what the runner times.
  virtual Status execute() = 0;
  // Copies of the last execution's outputs, in row-major order.
  virtual Result<std::vector<Tensor>> outputs() = 0;

  // Executions that must come before those that are timed: the engine uses them to look at itself.
  virtual unsigned least_warmup() const { return 0; }
  // Where the nodes ran; known after the first execution.
  virtual Placement placement() const { return {}; }

  // The loaded method's kernels, for the shapes it was given last; empty from engines that do not tell.
  virtual std::vector<KernelUse> kernels() const { return {}; }
  // The same for a described program's method in the shapes it declares, as far as it can be prepared here.
  virtual std::vector<KernelUse> kernels_of(const std::string& /*model_path*/,
                                            const std::string& /*method*/) {
    return {};
  }

  // Known after load(); empty where everything is done as the program says.
  virtual std::vector<Fallback> fallbacks() const { return {}; }

  // Known after load(); nothing from engines that do not tell.
  virtual std::optional<WeightsInfo> weights() const { return {}; }
  // Writes EngineOptions::weights_cache after all that is measured; weights() says what became of it.
  virtual void keep_weights() {}

  // The profile recorded since load(), in the engine's own file format. Empty without LoadOptions::profile.
  virtual Result<std::vector<std::uint8_t>> profile() = 0;
  // The bytes of the tensors that the profile names, with LoadOptions::values; else kUsage in some engines.
  virtual Result<std::vector<std::uint8_t>> values();
  // The last `timed` executions by operators, the costliest first; kUsage if the engine has only the file.
  virtual Result<std::vector<ProfileRow>> profile_rows(unsigned timed);
};

// Called once when the runtime underneath gives up (abort) instead of returning; must not return.
using AbortHandler = void (*)(const char* message);

// The engine this program was built with.
std::unique_ptr<Engine> make_engine(AbortHandler on_abort);

}  // namespace slipway
