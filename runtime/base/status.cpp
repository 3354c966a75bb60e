#include "slipway/status.h"

namespace slipway {

const char* kind_of(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kUsage:
      return "usage";
    case Code::kFile:
      return "file";
    case Code::kMissingOperator:
      return "missing-operator";
    case Code::kMissingBackend:
      return "missing-backend";
    case Code::kInput:
      return "input";
    case Code::kExecution:
      return "execution";
    case Code::kOutput:
      return "output";
    case Code::kMemory:
      return "memory";
    case Code::kCrash:
      return "crash";
    case Code::kLimit:
      return "limit";
  }
  return "unknown";
}

Status out_of_memory() {
  return {Code::kMemory, "Out of memory.", "use a smaller program or input, or a device with more memory"};
}

}  // namespace slipway
