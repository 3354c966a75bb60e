#include <cstring>
#include <mutex>

#include "handles.h"
#include "program_info.h"

namespace slipway {
namespace {

// What constants of a program are aligned to when it is mapped, as far as kernels care.
constexpr std::size_t kAligned = 64;

struct Origin {
  std::string path;                  // or what messages call it
  std::optional<MappedFile> mapped;  // unless it is read from the path
};

// Moves a program in memory to where constants lie as they must, if it does not lie there.
Status align(slipway_program* program, MappedFile* file) {
  if (file->size() == 0 || reinterpret_cast<std::uintptr_t>(file->data()) % kAligned == 0) {
    return {};
  }
  program->copy = Pages::allocate(file->size() + kReadBehind);
  if (program->copy->data() == nullptr) {
    return {Code::kMemory, "There is no memory for a copy of the program.",
            "give it at an address that is a multiple of 64"};
  }
  std::memcpy(program->copy->data(), file->data(), file->size());
  *file = MappedFile::borrow(program->copy->data(), file->size());
  return {};
}

lean::LoadRequest request_of(slipway_program* program, const slipway_options& options, Origin* origin) {
  lean::LoadRequest request;
  request.methods = options.methods;
  request.max_jumps = options.max_jumps;
  request.weights_cache = options.weights_cache;
  request.model_path = origin->path;
  request.data_path = options.data_path;
  if (!origin->mapped) {
    request.open = [&options, origin] { return lean::DataStore::open(origin->path, options.data_path); };
  } else {
    request.open = [&options, origin, program]() -> Result<lean::DataStore> {
      SLIPWAY_RETURN_IF_ERROR(align(program, &*origin->mapped));
      return lean::DataStore::open(std::move(*origin->mapped), origin->path, options.data_path);
    };
  }
  return request;
}

Status load_into(slipway_program** result, const slipway_options* given, Origin origin) {
  const slipway_options defaults;
  const slipway_options& options = given == nullptr ? defaults : *given;
  if (origin.mapped && !options.weights_cache.empty()) {
    return {Code::kUsage, "Packed weights are kept only for programs that are loaded from a path.",
            "load it from its path, or leave out the weights cache"};
  }
  auto program = std::make_unique<slipway_program>();
  if (options.threads) {
    program->threads = *options.threads;
  } else {
    SLIPWAY_TRY(program->threads, start_threads(0));
  }
  program->context.use_threads(program->threads.get());
  program->loaded.emplace(program->context);
  {
    // XNNPACK's tables of kernels are changed for a moment while layers are made.
    const std::unique_lock<std::shared_mutex> alone(kernel_tables());
    SLIPWAY_RETURN_IF_ERROR(program->loaded->load(request_of(program.get(), options, &origin)));
  }
  for (const std::unique_ptr<lean::Method>& method : program->loaded->methods()) {
    program->methods.push_back(std::make_unique<slipway_method>(method.get(), method_info(method->plan())));
  }
  *result = program.release();
  return {};
}

}  // namespace

std::shared_mutex& kernel_tables() {
  static std::shared_mutex mutex;
  return mutex;
}

}  // namespace slipway

using namespace slipway;

extern "C" {

slipway_error* slipway_program_load(const char* path, const slipway_options* options,
                                    slipway_program** program) {
  return guarded("slipway_program_load needs a path and an address for its result.", {path, program},
                 [&] { return load_into(program, options, {path, {}}); });
}

slipway_error* slipway_program_load_memory(const void* data, size_t size, const slipway_options* options,
                                           slipway_program** program) {
  const char* needs = "slipway_program_load_memory needs memory and an address for its result.";
  return guarded(needs, {data, program}, [&] {
    auto mapped = MappedFile::borrow(static_cast<const std::uint8_t*>(data), size);
    return load_into(program, options, {"The program in memory", std::move(mapped)});
  });
}

slipway_error* slipway_program_load_descriptor(int descriptor, uint64_t offset, uint64_t size,
                                               const slipway_options* options, slipway_program** program) {
  const char* needs = "slipway_program_load_descriptor needs an address for its result.";
  return guarded(needs, {program}, [&] {
    const std::string name = "file descriptor " + std::to_string(descriptor);
    SLIPWAY_TRY(MappedFile mapped, MappedFile::open_part(descriptor, offset, size, name));
    return load_into(program, options, {name, std::move(mapped)});
  });
}

void slipway_program_free(slipway_program* program) {
  delete program;
}

size_t slipway_program_method_count(const slipway_program* program) {
  return program == nullptr ? 0 : program->methods.size();
}

slipway_method* slipway_program_method_at(const slipway_program* program, size_t index) {
  return index < slipway_program_method_count(program) ? program->methods[index].get() : nullptr;
}

slipway_error* slipway_program_find_method(const slipway_program* program, const char* name,
                                           slipway_method** method) {
  const char* needs = "slipway_program_find_method needs a program, a name and an address.";
  return guarded(needs, {program, name, method}, [&] {
    std::string names;
    for (const std::unique_ptr<slipway_method>& candidate : program->methods) {
      if (candidate->info.name == name) {
        *method = candidate.get();
        return Status();
      }
      names += (names.empty() ? "" : ", ") + candidate->info.name;
    }
    return Status(Code::kUsage, "Method " + std::string(name) + " is not ready.",
                  "these were loaded: " + names, {name});
  });
}

slipway_error* slipway_program_keep_weights(slipway_program* program) {
  return guarded("slipway_program_keep_weights needs a program.", {program}, [&] {
    program->loaded->keep_weights();
    const std::optional<WeightsInfo> info = program->loaded->weights();
    if (!info || !info->cache) {
      return Status(Code::kUsage, "The options named no file for packed weights.",
                    "slipway_options_set_weights_cache names one");
    }
    return info->cache->state == "none"
               ? Status(Code::kOutput, info->cache->why, "name another file for packed weights")
               : Status();
  });
}

uint64_t slipway_program_weights_found(const slipway_program* program) {
  const std::optional<WeightsInfo> info =
      program == nullptr ? std::optional<WeightsInfo>() : program->loaded->weights();
  return info && info->cache ? info->blocks - info->packed : 0;
}

}  // extern "C"
