// XNNPACK's kernels: where it chooses one that the processor cannot run, that computes wrong, or that the run
// is to do without; which a graph may need; and which were chosen.
#pragma once

#include <xnnpack.h>

#include <string>
#include <vector>

#include "lean/xnnpack/payload.h"
#include "lean/xnnpack/rules.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

// Puts right what is known to be wrong, once XNNPACK is initialised and before it makes an operator.
void correct_kernel_choices();

// Whether the processor computes in halves. Only for 64-bit Arm and x86.
bool computes_halves();

// From now on, XNNPACK chooses kernels of its own only and none of KleidiAI's, in all of this process.
void forget_kleidiai_kernels();

// Which of XNNPACK's kernels a graph may need, by the types that they compute with. A bundle for some
// programs leaves the others out (`./inv build --ops-from`).

// Sorted, each once, by XNNPACK's names: "xnnpack::f32" for values of float32 in nodes without weights,
// "xnnpack::qd8_f32_qc8w_layers" for layers with weights in 8 bits by channel whose inputs are quantized as
// they come. What a processor computes in another type (float16 in float32) is not named: conanfile.py adds
// it.
std::vector<std::string> kernel_types(const GraphCheck& check);

// The same of all delegates of a method. kFile, or kMissingOperator, for what this runner cannot read.
Result<std::vector<std::string>> kernel_types(const pte::ExecutionPlan& plan, const DataStore& store);

// kMissingOperator, if this runner was linked without some of them. `what` names the delegate.
Status check_linked(const std::vector<std::string>& types, const std::string& what);

// What this runner has, sorted; empty: everything.
std::vector<std::string> linked_kernel_types();

// Which kernel XNNPACK chose for each of a graph's layers, on this processor and for this number of rows.

// One entry an operator, in the order in which they run; without a kernel's name where it is no matrix
// product, linear layer or convolution. The runtime must have been given its shapes: they decide, too.
std::vector<KernelUse> kernels_of(xnn_runtime_t runtime);

// The processor's features that decide between kernels, and how a run leaves some of them unused: it then
// computes with what a lesser processor would choose.

// Names of features, in the order given, each once. kUsage for a name that means nothing or a feature that
// every processor of this kind has; those that there are are listed then.
Result<std::vector<std::string>> known_features(const std::vector<std::string>& names);

struct UnusedFeatures {
  std::vector<std::string> unused;  // were there, with those that build on them
  std::vector<std::string> absent;  // no kernel here would have used them
};

// From now on, no kernel of XNNPACK's, of KleidiAI's or of ours that wants one of these features is chosen in
// this process. To be called before XNNPACK is initialised; there is no way back, because XNNPACK reads its
// table of the processor once.
UnusedFeatures leave_unused(const std::vector<std::string>& names);

}  // namespace slipway::lean
