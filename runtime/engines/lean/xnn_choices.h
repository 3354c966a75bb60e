// Where XNNPACK chooses a kernel that the processor cannot run.
#pragma once

namespace slipway::lean {

// Puts right what is known to be wrong, once XNNPACK is initialised and before it makes an operator.
void mend_kernel_choices();

}  // namespace slipway::lean
