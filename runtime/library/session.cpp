#include <cmath>
#include <cstring>

#include "handles.h"

namespace slipway {
namespace {

Result<std::vector<Tensor>> run_method(const slipway_program* program, const std::string& name,
                                       const std::vector<Tensor>& inputs) {
  lean::Method* method = program->loaded->find(name);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SLIPWAY_RETURN_IF_ERROR(method->set_input(i, inputs[i]));
  }
  {
    const std::shared_lock<std::shared_mutex> reading(kernel_tables());
    SLIPWAY_RETURN_IF_ERROR(method->execute());
  }
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < method->output_count(); ++i) {
    SLIPWAY_TRY(outputs.emplace_back(), method->output(i));
  }
  return outputs;
}

Status create(slipway_program* program, const char* name, slipway_session** session) {
  if (program->session != nullptr) {
    return {Code::kUsage, "The program has a session already, whose text is in the program's own memory.",
            "free that session first, or load the program once more"};
  }
  ProgramInfo info;
  const MethodInfo* method = nullptr;
  for (const std::unique_ptr<slipway_method>& one : program->methods) {
    info.methods.push_back(one->info);
  }
  for (const MethodInfo& one : info.methods) {
    const bool chosen =
        name != nullptr ? one.name == name : one.name == "forward" || one.name == "text_decoder";
    method = chosen && method == nullptr ? &one : method;
  }
  if (method == nullptr) {
    return {Code::kUsage, "Method " + std::string(name != nullptr ? name : "forward") + " is not ready.",
            "name the method that reads tokens, and load it"};
  }
  const auto run = [program](const std::string& called, const std::vector<Tensor>& inputs) {
    return run_method(program, called, inputs);
  };
  SLIPWAY_TRY(TextSession text, TextSession::open(info, *method, run));
  program->session.reset(new slipway_session{program, std::move(text), Sampler({}), {}, {}});
  *session = program->session.get();
  return {};
}

StateMemory memory_of(const slipway_session* session) {
  return session->program->loaded->find(session->text.model().method)->state();
}

// Of the program's files and the method's name; read once.
const Checksum& owner_of(slipway_session* session) {
  if (!session->owner) {
    const std::string& name = session->text.model().method;
    const Checksum sums[] = {session->program->loaded->checksum(), checksum_of(name.data(), name.size())};
    session->owner = checksum_of(sums, sizeof sums);
  }
  return *session->owner;
}

// Calls what changes the session: what was saved in memory ends.
template <typename Call>
slipway_error* changed(slipway_session* session, Call call) {
  return guarded("This needs a session.", {session}, [&] {
    session->saved = {};
    return call();
  });
}

Status restore(slipway_session* session, const void* data, std::size_t size, const std::string& name) {
  return restore_text(static_cast<const std::uint8_t*>(data), size, name, owner_of(session),
                      memory_of(session), &session->text);
}

}  // namespace
}  // namespace slipway

using namespace slipway;

extern "C" {

slipway_error* slipway_session_create(slipway_program* program, const char* method,
                                      slipway_session** session) {
  const char* needs = "slipway_session_create needs a program and an address for its result.";
  return guarded(needs, {program, session}, [&] { return create(program, method, session); });
}

void slipway_session_free(slipway_session* session) {
  if (session != nullptr) {
    session->program->session.reset();
  }
}

slipway_error* slipway_session_feed(slipway_session* session, const int64_t* ids, size_t count) {
  return changed(session, [&] { return session->text.read(ids, ids == nullptr ? 0 : count); });
}

slipway_error* slipway_session_feed_embeddings(slipway_session* session, const float* rows, size_t count) {
  return changed(session, [&] { return session->text.read_rows(rows, rows == nullptr ? 0 : count); });
}

slipway_error* slipway_session_truncate(slipway_session* session, int64_t position) {
  return changed(session, [&] { return session->text.go_back(position); });
}

const float* slipway_session_logits(const slipway_session* session, size_t* count) {
  const bool none = session == nullptr || session->text.scores().empty();
  if (count != nullptr) {
    *count = none ? 0 : session->text.scores().size();
  }
  return none ? nullptr : session->text.scores().data();
}

slipway_error* slipway_session_set_sampling(slipway_session* session, double temperature, uint32_t top_k,
                                            double top_p, uint64_t seed) {
  if (session == nullptr || !(temperature >= 0) || std::isinf(temperature) || !(top_p > 0 && top_p <= 1)) {
    return usage_error(
        "Sampling needs a session, a temperature of at least 0, and a top_p above 0 and at most 1.",
        "temperature 0 takes the likeliest token, top_k 0 and top_p 1 leave out none");
  }
  session->sampler = Sampler({temperature, top_k, top_p, seed});
  return nullptr;
}

slipway_error* slipway_session_sample(slipway_session* session, int64_t* id) {
  const char* needs = "slipway_session_sample needs a session and an address for its result.";
  return guarded(needs, {session, id}, [&] {
    SLIPWAY_TRY(*id, session->text.pick(session->sampler));
    return Status();
  });
}

int64_t slipway_session_position(const slipway_session* session) {
  return session == nullptr ? 0 : session->text.position();
}

int64_t slipway_session_context(const slipway_session* session) {
  return session == nullptr ? 0 : session->text.model().context;
}

size_t slipway_session_width(const slipway_session* session) {
  return session == nullptr ? 0 : static_cast<size_t>(session->text.model().width);
}

const int64_t* slipway_session_stops(const slipway_session* session, size_t* count) {
  const std::vector<std::int64_t>* stops = session == nullptr ? nullptr : &session->text.model().stops;
  if (count != nullptr) {
    *count = stops == nullptr ? 0 : stops->size();
  }
  return stops == nullptr || stops->empty() ? nullptr : stops->data();
}

slipway_error* slipway_session_save(slipway_session* session, const char* path) {
  return guarded("slipway_session_save needs a session and a path.", {session, path}, [&] {
    std::vector<std::uint64_t> head;
    const Checksum& owner = owner_of(session);
    return write_file(path, save_text(session->text, memory_of(session), owner, &head));
  });
}

slipway_error* slipway_session_save_memory(slipway_session* session, const void** data, size_t* size) {
  const char* needs = "slipway_session_save_memory needs a session and addresses for its results.";
  return guarded(needs, {session, data, size}, [&] {
    std::vector<std::uint64_t> head;
    std::vector<std::uint8_t> all;
    const Checksum& owner = owner_of(session);
    for (const FilePart& part : save_text(session->text, memory_of(session), owner, &head)) {
      const auto* begin = static_cast<const std::uint8_t*>(part.data);
      all.insert(all.end(), begin, begin + part.size);
    }
    session->saved = std::move(all);
    *data = session->saved.data();
    *size = session->saved.size();
    return Status();
  });
}

slipway_error* slipway_session_restore(slipway_session* session, const char* path) {
  return guarded("slipway_session_restore needs a session and a path.", {session, path}, [&] {
    SLIPWAY_TRY(const MappedFile file, MappedFile::open(path));
    return restore(session, file.data(), file.size(), path);
  });
}

slipway_error* slipway_session_restore_memory(slipway_session* session, const void* data, size_t size) {
  // What a session saved itself may be given back to it.
  return guarded("slipway_session_restore_memory needs a session and memory.", {session, data},
                 [&] { return restore(session, data, size, "The saved text in memory"); });
}

}  // extern "C"
