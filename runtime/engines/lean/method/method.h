// One method of a program, ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/data/data_store.h"
#include "lean/data/evalue.h"
#include "lean/kernels/kernel.h"
#include "lean/method/delegate.h"
#include "lean/method/recorder.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

// A tensor as a caller has it: row-major.
struct InputBytes {
  DType dtype = DType::kUnknown;
  const std::int64_t* sizes = nullptr;
  std::size_t rank = 0;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;      // bytes of its elements
  std::size_t readable = 0;  // bytes that may be read at data
};

class Method {
 public:
  // Makes memory, values, delegates and instructions of the method called `name`. All operators that have no
  // kernel here are named at once (kMissingOperator). Store, weights and shared memory must outlive the
  // method, as must the recorder, which may be nullptr.
  static Result<std::unique_ptr<Method>> load(const XnnContext& context, const DataStore& store,
                                              PackedWeights& weights, SharedArenas& shared,
                                              const std::string& name, Recorder* recorder);

  std::string name() const { return plan_->name()->str(); }

  std::size_t input_count() const { return plan_->inputs()->size(); }
  std::size_t output_count() const { return plan_->outputs()->size(); }

  // How often one execution may jump backwards. Exporters write such jumps for map and scan, one for each
  // element; in a damaged program they may lead round and round.
  void set_most_jumps(unsigned most) { most_jumps_ = most; }

  // Copies an input, unless nothing writes to it. It must outlive the next execution.
  Status set_input(std::size_t index, const Tensor& input);
  // Lets the next execution read an input where it is, if it can be read there; else copies it (`copied`).
  Status give_input(std::size_t index, const InputBytes& input, bool* copied);
  Status execute();
  Result<Tensor> output(std::size_t index) const;
  // An output that lies in memory in row-major order, as the last execution left it; nullptr for others.
  const TensorView* output_in_place(std::size_t index) const;
  // Memory that an execution reads before it writes there (mutable buffers). By address, each byte once.
  std::vector<std::pair<std::uint8_t*, std::size_t>> state() const;
  // Whether shapes are the same at every execution.
  bool fixed_shapes() const;
  // What the program declares of the method.
  const pte::ExecutionPlan& plan() const { return *plan_; }
  // Of all delegates' layers, by the instructions that call them.
  std::vector<KernelUse> kernels() const;
  // Of all delegates.
  std::vector<Fallback> fallbacks() const;

 private:
  enum class Action : std::uint8_t { kKernel, kDelegate, kMove, kJumpFalse, kFree };
  // What the first instruction with a value does, and when.
  enum class Use : std::uint8_t { kNone, kRead, kWritten };
  struct FirstUse {
    Use how = Use::kNone;
    std::size_t when = 0;
  };

  struct Instruction {
    Action action = Action::kFree;
    const KernelEntry* kernel = nullptr;
    Delegate* delegate = nullptr;
    const std::int32_t* arguments = nullptr;  // in the program
    std::size_t count = 0;
    std::size_t outputs = 0;  // of a kernel: where they begin among its arguments
    std::size_t from = 0;     // of a move; the condition of a jump
    std::size_t to = 0;       // of a move; the destination of a jump
  };

  // Asks for the memory that an instruction looks into first, while one before it computes: a model whose
  // weights fill the caches has driven it out since the last execution.
  void fetch(std::size_t instruction) const;
  void find_lines();
  Method(const XnnContext& context, const DataStore& store, PackedWeights& weights, SharedArenas& shared,
         const pte::ExecutionPlan& plan, Recorder* recorder)
      : context_(context),
        store_(store),
        weights_(weights),
        shared_(shared),
        plan_(&plan),
        recorder_(recorder) {}

  // Where the bundle has no XNNPACK, nothing may call a delegate: then the linker leaves all of XNNPACK out.
  static bool is_delegate(const Instruction& instruction) {
    return kHasXnnpack && instruction.action == Action::kDelegate;
  }
  Status make_arenas();
  Status make_values();
  Status take_input(std::size_t index, const InputBytes& input, bool in_place, bool* copied);
  Status make_tensor(const pte::Tensor& tensor, std::size_t index, TensorView* view);
  Status give_memory(const pte::Tensor& tensor, std::size_t index, TensorView* view);
  Status find_operators(std::vector<const KernelEntry*>* kernels) const;
  std::string name_of_delegate(std::size_t index) const;
  Status make_delegates();
  Status make_instructions(const std::vector<const KernelEntry*>& kernels);
  bool only_delegates_read(std::int32_t value) const;
  std::vector<FirstUse> first_uses() const;
  void find_shared_inputs();
  Status run_kernel(const Instruction& instruction);
  Status run_delegate(const Instruction& instruction);
  Status move(const Instruction& instruction);
  Status run_instructions();
  void record(const Instruction& instruction, std::size_t index, std::uint64_t start);
  void record_values(const Instruction& instruction, std::size_t index);

  const XnnContext& context_;
  const DataStore& store_;
  PackedWeights& weights_;
  SharedArenas& shared_;
  const pte::ExecutionPlan* plan_;
  Recorder* recorder_;  // nullptr: nobody wants a profile
  Blocks memory_;
  std::vector<Bytes> arenas_;
  std::vector<EValue> values_;
  std::vector<std::pair<std::uint8_t*, std::size_t>> input_memory_;  // that was planned, and its bytes
  std::vector<bool> read_in_place_;                                  // of inputs: nothing could write to them
  std::vector<bool> shared_inputs_;  // of inputs: other values are read from their memory
  std::vector<std::unique_ptr<Delegate>> delegates_;
  std::vector<Instruction> instructions_;
  Lines lines_;  // of all instructions, one behind the other
  std::vector<std::size_t> line_ends_;
  std::vector<TensorView*> delegate_arguments_;
  Scratch scratch_;
  unsigned most_jumps_ = 10'000'000;
};

}  // namespace slipway::lean
