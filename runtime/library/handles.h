// What the opaque handles of slipway.h are.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/platform.h"
#include "lean/loaded_program.h"
#include "slipway/engine.h"
#include "slipway/slipway.h"
#include "slipway/status.h"
#include "text/sampler.h"
#include "text/session.h"

namespace slipway {

// Threads that programs share; nullptr for one thread.
using Threads = std::shared_ptr<pthreadpool>;

// As many threads, the caller's among them; 0: one for each physical core.
Result<Threads> start_threads(std::uint32_t count);

// The error of a failure; NULL for none.
slipway_error* error_of(Status status);
slipway_error* usage_error(const char* message, const char* fix);
// The one for which no memory is needed.
slipway_error* no_memory_error();

// Calls what may throw as the containers of the standard library do.
template <typename Call>
slipway_error* guarded(Call call) {
  try {
    return error_of(call());
  } catch (const std::bad_alloc&) {
    return no_memory_error();
  } catch (const std::exception& error) {
    return error_of(Status(Code::kCrash, std::string("The library failed: ") + error.what() + ".",
                           "export the model again, and report it if that does not help"));
  }
}

// The same with addresses that must be there: `needs` says which.
template <typename Call>
slipway_error* guarded(const char* needs, std::initializer_list<const void*> addresses, Call call) {
  for (const void* address : addresses) {
    if (address == nullptr) {
      return usage_error(needs, "give none of them as NULL");
    }
  }
  return guarded(call);
}

std::int32_t to_public(DType dtype);
DType to_dtype(std::int32_t dtype);

// XNNPACK's tables of kernels, which all programs of a process share. Alone: who changes them for a moment,
// while layers are made. Shared: who may read them, which is where an execution chooses kernels anew.
std::shared_mutex& kernel_tables();

}  // namespace slipway

struct slipway_error {
  slipway::Status status;
};

struct slipway_pool {
  slipway::Threads threads;
};

struct slipway_options {
  std::optional<slipway::Threads> threads;
  std::string data_path;
  std::string weights_cache;
  std::vector<std::string> methods;
  std::uint32_t max_jumps = 0;
};

struct slipway_method {
  struct Input {
    slipway_tensor tensor = {};
    std::size_t size = 0;  // bytes of its elements
    bool given = false;
    bool copied = false;
  };

  slipway_method(slipway::lean::Method* loaded, slipway::MethodInfo declared);

  slipway::lean::Method* method;
  slipway::MethodInfo info;
  std::vector<Input> inputs;
  std::vector<slipway::Tensor> converted;  // outputs that do not lie in memory as they are given
  bool fixed_shapes;
  bool ran = false;
  // Whether XNNPACK has made up its mind about kernels and memory for the shapes of the inputs.
  bool settled = false;
};

struct slipway_session {
  slipway_program* program;
  slipway::TextSession text;
  slipway::Sampler sampler;
  std::optional<slipway::Checksum> owner;
  std::vector<std::uint8_t> saved;  // what slipway_session_save_memory gave last
};

struct slipway_program {
  // In the order in which they need one another.
  slipway::Threads threads;
  slipway::lean::XnnContext context;
  std::optional<slipway::Pages> copy;  // of a program that does not lie as it must
  std::optional<slipway::lean::LoadedProgram> loaded;
  std::vector<std::unique_ptr<slipway_method>> methods;
  std::unique_ptr<slipway_session> session;
};
