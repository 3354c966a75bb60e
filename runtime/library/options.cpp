#include <algorithm>

#include "handles.h"

namespace slipway {

slipway_error* no_memory_error() {
  static slipway_error error{out_of_memory()};
  return &error;
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

Result<Threads> start_threads(std::uint32_t count) {
  const std::uint32_t wanted = count == 0 ? std::min(usable_cores(), kMostThreads) : count;
  if (wanted <= 1) {
    return Threads();
  }
  SLIPWAY_RETURN_IF_ERROR(check_threads(wanted));
  Threads threads(pthreadpool_create(wanted), [](pthreadpool* pool) { pthreadpool_destroy(pool); });
  if (threads == nullptr) {
    return Status(Code::kMemory, "Cannot start " + std::to_string(wanted) + " threads.", "ask for fewer");
  }
  return threads;
}

namespace {

static_assert(SLIPWAY_BOOL == static_cast<int>(DType::kBool) + 1);
static_assert(SLIPWAY_FLOAT64 == static_cast<int>(DType::kFloat64) + 1);
static_assert(static_cast<int>(DType::kUnknown) == SLIPWAY_FLOAT64);
static_assert(SLIPWAY_USAGE == static_cast<int>(Code::kUsage) &&
              SLIPWAY_LIMIT == static_cast<int>(Code::kLimit));
static_assert(SLIPWAY_MAX_DIMS == lean::kMostDims && SLIPWAY_READ_BEHIND == kReadBehind);

// Made when the library is loaded: later there may be no memory for it.
[[maybe_unused]] const slipway_error* const prepared = no_memory_error();

slipway_error* set_text(slipway_options* options, std::string slipway_options::* member, const char* text) {
  return guarded("An option needs options and a text.", {options, text}, [&] {
    options->*member = text;
    return Status();
  });
}

}  // namespace
}  // namespace slipway

using namespace slipway;

extern "C" {

slipway_error* slipway_pool_create(uint32_t threads, slipway_pool** pool) {
  return guarded("slipway_pool_create needs an address for its result.", {pool}, [&] {
    SLIPWAY_TRY(Threads started, start_threads(threads));
    *pool = new slipway_pool{std::move(started)};
    return Status();
  });
}

uint32_t slipway_pool_threads(const slipway_pool* pool) {
  return pool == nullptr || pool->threads == nullptr
             ? 1
             : static_cast<uint32_t>(pthreadpool_get_threads_count(pool->threads.get()));
}

void slipway_pool_free(slipway_pool* pool) {
  delete pool;
}

slipway_options* slipway_options_create(void) {
  return new (std::nothrow) slipway_options;
}

void slipway_options_free(slipway_options* options) {
  delete options;
}

slipway_error* slipway_options_set_pool(slipway_options* options, const slipway_pool* pool) {
  return guarded("slipway_options_set_pool needs options and a pool.", {options, pool}, [&] {
    options->threads = pool->threads;
    return Status();
  });
}

slipway_error* slipway_options_set_data_path(slipway_options* options, const char* path) {
  return set_text(options, &slipway_options::data_path, path);
}

slipway_error* slipway_options_set_weights_cache(slipway_options* options, const char* path) {
  return set_text(options, &slipway_options::weights_cache, path);
}

slipway_error* slipway_options_add_method(slipway_options* options, const char* name) {
  return guarded("slipway_options_add_method needs options and a name.", {options, name}, [&] {
    std::vector<std::string>& all = options->methods;
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      all.emplace_back(name);
    }
    return Status();
  });
}

slipway_error* slipway_options_set_max_jumps(slipway_options* options, uint32_t jumps) {
  return guarded("slipway_options_set_max_jumps needs options.", {options}, [&] {
    options->max_jumps = jumps;
    return Status();
  });
}

uint32_t slipway_abi_version(void) {
  return SLIPWAY_ABI_VERSION;
}

const char* slipway_version(void) {
  return SLIPWAY_VERSION;
}

size_t slipway_dtype_size(int32_t dtype) {
  return size_of(to_dtype(dtype));
}

const char* slipway_dtype_name(int32_t dtype) {
  return name_of(to_dtype(dtype));
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
  if (error != no_memory_error()) {
    delete error;
  }
}

}  // extern "C"
