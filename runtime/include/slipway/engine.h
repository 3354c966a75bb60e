// The interface every engine implements: load, describe, set inputs, execute, outputs, profile, capabilities.
//
// The runner calls, in this order: set_threads, describe, load, then set_inputs + execute as often as asked,
// then outputs and profile. Whatever a runtime underneath throws or aborts with stays inside the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// Where a value's shape stands: fixed, at most the shape given, or not known before execution.
enum class Dynamism : std::uint8_t { kStatic, kBounded, kUnbounded };

// One input or output of a method, as the program declares it.
struct ValueSpec {
  std::string kind;  // "tensor", "int", "double", "bool", "string", "none", or another of the engine's words
  DType dtype = DType::kUnknown;
  Shape shape;
  Dynamism dynamism = Dynamism::kStatic;
  // For "int", "double" and "bool" inputs: the value the program was exported with.
  Tensor exported;
};

struct MethodInfo {
  std::string name;
  std::vector<ValueSpec> inputs;
  std::vector<ValueSpec> outputs;
  std::vector<std::string> backends;   // sorted, each once
  std::vector<std::string> operators;  // sorted, each once, as registered: "aten::add.out"
  // Names of the weights that the program does not hold itself: they come from LoadOptions::data_path.
  std::vector<std::string> external_weights;
};

struct ProgramInfo {
  std::uint64_t size = 0;
  std::uint64_t version = 0;
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
};

struct LoadOptions {
  std::string model_path;
  std::string data_path;  // weights stored apart from the program; empty when there are none
  std::string method;
  bool profile = false;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual EngineInfo info() const = 0;
  // What is registered in this process.
  virtual Capabilities capabilities() const = 0;

  // Sets the number of threads for all later work; returns the number in effect.
  virtual Result<unsigned> set_threads(unsigned count) = 0;

  // Reads what the program declares. Checks the whole file first (kFile when it is damaged); loads,
  // initialises and runs nothing.
  virtual Result<ProgramInfo> describe(const std::string& model_path) = 0;

  // Loads the program and makes one method ready to run.
  virtual Status load(const LoadOptions& options) = 0;

  // Gives the method its inputs for the next execute(). The tensors must outlive it.
  virtual Status set_inputs(const std::vector<Tensor>& inputs) = 0;
  // Runs the method once; this call alone is what the runner times.
  virtual Status execute() = 0;
  // Copies of the last execution's outputs, in row-major order.
  virtual Result<std::vector<Tensor>> outputs() = 0;

  // The profile recorded since load(), in the engine's own file format. Empty without LoadOptions::profile.
  virtual Result<std::vector<std::uint8_t>> profile() = 0;
};

// Called once when the runtime underneath gives up (abort) instead of returning; must not return.
using AbortHandler = void (*)(const char* message);

// The engine this program was built with.
std::unique_ptr<Engine> make_engine(AbortHandler on_abort);

}  // namespace slipway
