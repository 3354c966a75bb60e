#include <algorithm>

#include "handles.h"

namespace slipway {

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

slipway_error* set_text(slipway_options* options, std::string slipway_options::* member, const char* text) {
  return guarded("An option needs options and a text.", {options, text}, [&] {
    options->*member = text;
    return Status();
  });
}

}  // namespace
}  // namespace slipway

extern "C" {

slipway_error* slipway_pool_create(uint32_t threads, slipway_pool** pool) {
  return slipway::guarded("slipway_pool_create needs an address for its result.", {pool}, [&] {
    slipway::Result<slipway::Threads> started = slipway::start_threads(threads);
    SLIPWAY_RETURN_IF_ERROR(started);
    *pool = new slipway_pool{std::move(started.value())};
    return slipway::Status();
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
  return slipway::guarded("slipway_options_set_pool needs options and a pool.", {options, pool}, [&] {
    options->threads = pool->threads;
    return slipway::Status();
  });
}

slipway_error* slipway_options_set_data_path(slipway_options* options, const char* path) {
  return slipway::set_text(options, &slipway_options::data_path, path);
}

slipway_error* slipway_options_set_weights_cache(slipway_options* options, const char* path) {
  return slipway::set_text(options, &slipway_options::weights_cache, path);
}

slipway_error* slipway_options_add_method(slipway_options* options, const char* name) {
  return slipway::guarded("slipway_options_add_method needs options and a name.", {options, name}, [&] {
    std::vector<std::string>& all = options->methods;
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      all.emplace_back(name);
    }
    return slipway::Status();
  });
}

slipway_error* slipway_options_set_max_jumps(slipway_options* options, uint32_t jumps) {
  return slipway::guarded("slipway_options_set_max_jumps needs options.", {options}, [&] {
    options->max_jumps = jumps;
    return slipway::Status();
  });
}

}  // extern "C"
