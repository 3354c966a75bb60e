// Where XNNPACK chooses a kernel that the processor cannot run, that computes wrong, or that the run is to do
// without.
#pragma once

#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {

// Puts right what is known to be wrong, once XNNPACK is initialised and before it makes an operator.
void correct_kernel_choices();

// Whether the processor computes in halves. Only for 64-bit Arm and x86.
bool computes_halves();

// From now on, XNNPACK chooses kernels of its own only and none of KleidiAI's, in all of this process.
void forget_kleidiai_kernels();

// While this is there, fully-connected layers are defined for rows as they are. On a processor with SME2
// XNNPACK packs the rows of every layer in float32 for a kernel of KleidiAI's, which takes weights that were
// packed before; a layer whose weights come when the program runs would read the packed rows as plain ones.
Changed<xnn_gemm_config> plain_rows();

}  // namespace slipway::lean
