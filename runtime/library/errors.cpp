#include "handles.h"

namespace slipway {
namespace {

static_assert(SLIPWAY_BOOL == static_cast<int>(DType::kBool) + 1);
static_assert(SLIPWAY_FLOAT64 == static_cast<int>(DType::kFloat64) + 1);
static_assert(static_cast<int>(DType::kUnknown) == SLIPWAY_FLOAT64);
static_assert(SLIPWAY_USAGE == static_cast<int>(Code::kUsage) &&
              SLIPWAY_LIMIT == static_cast<int>(Code::kLimit));
static_assert(SLIPWAY_MAX_DIMS == lean::kMostDims && SLIPWAY_READ_BEHIND == kReadBehind);

// Made when the library is loaded: later there may be no memory for it.
slipway_error& last_resort() {
  static slipway_error error{out_of_memory()};
  return error;
}
const slipway_error& prepared = last_resort();

}  // namespace

slipway_error* no_memory_error() {
  return &last_resort();
}

slipway_error* error_of(Status status) {
  if (status.ok()) {
    return nullptr;
  }
  auto* error = new (std::nothrow) slipway_error{std::move(status)};
  return error == nullptr ? no_memory_error() : error;
}

slipway_error* usage_error(const char* message, const char* fix) {
  return guarded([&] { return Status(Code::kUsage, message, fix); });
}

std::int32_t to_public(DType dtype) {
  static_assert(static_cast<int>(DType::kNone) == SLIPWAY_NONE, "what follows kUnknown keeps its number");
  const auto number = static_cast<std::int32_t>(dtype);
  return dtype < DType::kUnknown ? number + 1 : dtype == DType::kUnknown ? SLIPWAY_UNKNOWN : number;
}

DType to_dtype(std::int32_t dtype) {
  const bool known = dtype > SLIPWAY_UNKNOWN && dtype <= SLIPWAY_COMPLEX128;
  return known ? static_cast<DType>(dtype < SLIPWAY_NONE ? dtype - 1 : dtype) : DType::kUnknown;
}

}  // namespace slipway

extern "C" {

uint32_t slipway_abi_version(void) {
  return SLIPWAY_ABI_VERSION;
}

const char* slipway_version(void) {
  return SLIPWAY_VERSION;
}

size_t slipway_dtype_size(int32_t dtype) {
  return slipway::size_of(slipway::to_dtype(dtype));
}

const char* slipway_dtype_name(int32_t dtype) {
  return slipway::name_of(slipway::to_dtype(dtype));
}

slipway_code slipway_error_code(const slipway_error* error) {
  return error == nullptr ? SLIPWAY_OK : static_cast<slipway_code>(error->status.code());
}

const char* slipway_error_message(const slipway_error* error) {
  return error == nullptr ? "" : error->status.message().c_str();
}

const char* slipway_error_fix(const slipway_error* error) {
  return error == nullptr ? "" : error->status.fix().c_str();
}

void slipway_error_free(slipway_error* error) {
  if (error != slipway::no_memory_error()) {
    delete error;
  }
}

}  // extern "C"
