// A runner that was linked for some programs has nothing else.
#include "runner/roofline/roofline.h"

namespace slipway {

Result<Roofline> measure_roofline(unsigned /*threads*/) {
  return Status(Code::kUsage, "This runner was linked for some programs only and measures no roofline.",
                "build one without --ops-from");
}

}  // namespace slipway
