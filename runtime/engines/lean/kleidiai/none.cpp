// For targets without KleidiAI.
#include "lean/kleidiai/layer.h"

namespace slipway::lean {

bool kai_has(const MatrixLayer& /*layer*/) {
  return false;
}

bool kai_has_any() {
  return false;
}

Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& /*layer*/, PackedWeights& /*weights*/) {
  return Status(Code::kExecution, "This runner was built without KleidiAI.", "build it again");
}

}  // namespace slipway::lean
