// What slipway.h and slipway.hpp promise, held to account: check model.pte image.pte speaker.pte other.pte
// several.pte. Prints what failed.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>
#ifndef _WIN32
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "slipway/slipway.hpp"

namespace {

std::atomic<int> failures{0};

void expect(bool holds, const char* what, int line) {
  if (!holds) {
    std::printf("FAILED %d: %s\n", line, what);
    ++failures;
  }
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

template <typename Outcome>
bool refused(const Outcome& outcome, slipway_code code, const std::string& words = "") {
  const bool right = !outcome.ok() && outcome.error().code() == code && !outcome.error().fix().empty() &&
                     outcome.error().message().find(words) != std::string::npos;
  std::printf("%s", right ? "" : outcome.ok() ? "no error\n" : (outcome.error().message() + "\n").c_str());
  return right;
}

using Bytes = std::vector<char>;

Bytes read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Inputs of "forward" in the shapes that it declares, with numbers that differ.
struct Inputs {
  explicit Inputs(const slipway::Method& method) {
    for (std::size_t i = 0; i < method.num_inputs(); ++i) {
      const auto spec = method.input_spec(i);
      EXPECT(spec.ok() && spec->kind == SLIPWAY_TENSOR && spec->dtype == SLIPWAY_FLOAT32);
      const std::vector<std::int64_t> sizes(spec->sizes, spec->sizes + spec->rank);
      const std::size_t count = slipway::from_blob(static_cast<float*>(nullptr), sizes).numel();
      memory.emplace_back(count + SLIPWAY_READ_BEHIND / sizeof(float));
      for (std::size_t j = 0; j < count; ++j) {
        memory.back()[j] = static_cast<float>((j * 37 + i) % 101) / 101.0F - 0.5F;
      }
      tensors.push_back(
          slipway::from_blob(memory.back().data(), sizes, memory.back().size() * sizeof(float)));
    }
  }

  std::vector<std::vector<float>> memory;
  std::vector<slipway::Tensor> tensors;
};

Bytes bytes_of(const slipway::Result<std::vector<slipway::Tensor>>& outputs) {
  Bytes all;
  EXPECT(outputs.ok());
  if (outputs.ok()) {
    for (const slipway::Tensor& tensor : *outputs) {
      const auto* data = static_cast<const char*>(tensor.data());
      all.insert(all.end(), data, data + tensor.nbytes());
    }
  }
  return all;
}

Bytes run(slipway::Result<slipway::Program> program) {
  if (!program.ok()) {
    std::printf("%s\n", program.error().message().c_str());
    ++failures;
    return {};
  }
  const auto method = program->method();
  const Inputs inputs(*method);
  return bytes_of(program->forward(inputs.tensors));
}

void check_sources(const std::string& path, const Bytes& expected) {
  const Bytes file = read(path);
  Bytes moved(file.size() + 1);
  std::copy(file.begin(), file.end(), moved.begin() + 1);
  EXPECT(run(slipway::Program::load(file.data(), file.size())) == expected);
  EXPECT(run(slipway::Program::load(moved.data() + 1, file.size())) == expected);
#ifdef _WIN32
  EXPECT(refused(slipway::Program::load_descriptor(0), SLIPWAY_USAGE));
#else
  const int whole = ::open(path.c_str(), O_RDONLY);
  EXPECT(run(slipway::Program::load_descriptor(whole)) == expected);
  ::close(whole);
  // As an asset inside of a package: behind other bytes, and before others.
  for (const std::size_t before : {std::size_t{4096 + 64}, std::size_t{4093}}) {
    const std::string package = path + ".package";
    {
      std::ofstream out(package, std::ios::binary);
      out << std::string(before, 'x');
      out.write(file.data(), static_cast<std::streamsize>(file.size()));
      out << std::string(100, 'y');
    }
    const int part = ::open(package.c_str(), O_RDONLY);
    auto program = slipway::Program::load_descriptor(part, before, file.size());
    ::close(part);
    EXPECT(run(std::move(program)) == expected);
    const int again = ::open(package.c_str(), O_RDONLY);
    EXPECT(refused(slipway::Program::load_descriptor(again, before, file.size() + 101), SLIPWAY_FILE));
    ::close(again);
    std::remove(package.c_str());
  }
#endif
}

void check_errors(const std::string& path) {
  EXPECT(refused(slipway::Program::load(path + ".none"), SLIPWAY_FILE));
  Bytes damaged = read(path);
  damaged.resize(damaged.size() / 2);
  EXPECT(refused(slipway::Program::load(damaged.data(), damaged.size()), SLIPWAY_FILE));
  slipway::LoadOptions options;
  options.methods = {"backward"};
  EXPECT(refused(slipway::Program::load(path, options), SLIPWAY_USAGE));
  auto program = slipway::Program::load(path);
  EXPECT(program.ok() && !program->method("backward").ok());
  auto method = program->method();
  EXPECT(!method->output(0).ok());
  EXPECT(refused(method->execute(), SLIPWAY_INPUT));
  EXPECT(refused(method->forward({}), SLIPWAY_INPUT));
  Inputs inputs(*method);
  slipway_tensor tensor = inputs.tensors[0].c_tensor();
  tensor.sizes[tensor.rank - 1] += 1;
  EXPECT(refused(method->set_input(0, slipway::Tensor(tensor)), SLIPWAY_INPUT));
  tensor = inputs.tensors[0].c_tensor();
  tensor.dtype = SLIPWAY_INT32;
  EXPECT(!method->set_input(0, slipway::Tensor(tensor)).ok());
  tensor = inputs.tensors[0].c_tensor();
  tensor.data = nullptr;
  EXPECT(!method->set_input(0, slipway::Tensor(tensor)).ok());
  EXPECT(!method->set_input(0, slipway::from_blob(nullptr, {}, slipway::ScalarType::kNone)).ok());
  EXPECT(!method->set_input(method->num_inputs(), inputs.tensors[0]).ok());
  // After all these the method runs.
  EXPECT(program->forward(inputs.tensors).ok());
  EXPECT(slipway_program_load(nullptr, nullptr, nullptr) != nullptr);  // leaks one error, on purpose
  EXPECT(slipway_error_code(nullptr) == SLIPWAY_OK && slipway_error_message(nullptr)[0] == '\0');
  slipway_error_free(nullptr);
  slipway_program_free(nullptr);
  slipway_pool_free(nullptr);
  slipway_options_free(nullptr);
}

// Inputs are read where they are when they can be, and the answer is the same when they cannot.
void check_copies(const std::string& path, const Bytes& expected) {
  auto program = slipway::Program::load(path);
  auto method = program->method();
  Inputs inputs(*method);
  EXPECT(bytes_of(method->forward(inputs.tensors)) == expected && !method->input_copied(0));
  // A buffer that ends where its page ends, with nothing behind it.
  slipway_tensor tensor = inputs.tensors[0].c_tensor();
  const std::size_t size = inputs.tensors[0].nbytes();
#ifndef _WIN32
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = (size + page - 1) / page;
  auto* memory = static_cast<char*>(
      ::mmap(nullptr, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + pages * page, page, PROT_NONE);
  tensor.data = memory + pages * page - size;
  tensor.readable = 0;
  std::memcpy(tensor.data, inputs.memory[0].data(), size);
  std::vector<slipway::Tensor> edge = inputs.tensors;
  edge[0] = slipway::Tensor(tensor);
  EXPECT(bytes_of(method->forward(edge)) == expected && method->input_copied(0));
  ::munmap(memory, (pages + 1) * page);
#endif
  // Elements across their own bounds.
  Bytes shifted(size + SLIPWAY_READ_BEHIND + 1);
  std::memcpy(shifted.data() + 1, inputs.memory[0].data(), size);
  tensor.data = shifted.data() + 1;
  tensor.readable = shifted.size() - 1;
  std::vector<slipway::Tensor> crooked = inputs.tensors;
  crooked[0] = slipway::Tensor(tensor);
  EXPECT(bytes_of(method->forward(crooked)) == expected && method->input_copied(0));
  // Again in place, and what is in the buffer when the method runs counts.
  EXPECT(bytes_of(method->forward(inputs.tensors)) == expected && !method->input_copied(0));
  const std::vector<float> before = inputs.memory[0];
  std::fill(inputs.memory[0].begin(), inputs.memory[0].end(), 0.25F);
  EXPECT(method->execute().ok());
  const auto changed = method->output(0);
  EXPECT(changed.ok() && std::memcmp(changed->data(), expected.data(), changed->nbytes()) != 0);
  inputs.memory[0] = before;
}

// Two programs and one pool, each used by a thread of its own, while a third loads again and again.
void check_threads(const std::string& path, const std::string& other, const Bytes& one, const Bytes& two) {
  const auto pool = slipway::Pool::create(2);
  EXPECT(pool.ok() && pool->threads() == 2);
  slipway::LoadOptions options;
  options.pool = &*pool;
  std::atomic<int> wrong{0};
  const auto use = [&](const std::string& model, const Bytes& expected, int loads, int runs) {
    for (int i = 0; i < loads; ++i) {
      auto program = slipway::Program::load(model, options);
      if (!program.ok()) {
        ++wrong;
        return;
      }
      const auto method = program->method();
      const Inputs inputs(*method);
      for (int j = 0; j < runs; ++j) {
        wrong += bytes_of(program->forward(inputs.tensors)) == expected ? 0 : 1;
      }
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(use, path, one, 2, 20);
  threads.emplace_back(use, other, two, 2, 20);
  threads.emplace_back(use, path, one, 8, 1);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT(wrong == 0);
}

void check_weights_cache(const std::string& path, const Bytes& expected) {
  slipway::LoadOptions options;
  options.weights_cache = path + ".packed";
  for (int i = 0; i < 2; ++i) {
    auto program = slipway::Program::load(path, options);
    EXPECT(program.ok() && (slipway_program_weights_found(program->c_program()) != 0) == (i == 1));
    EXPECT(run(slipway::Program::load(path, options)) == expected);
    const auto kept = program->keep_weights();
    if (!kept.ok()) {
      std::printf("%s\n", kept.error().message().c_str());
    }
    EXPECT(kept.ok());
  }
  std::remove(options.weights_cache.c_str());
  const Bytes file = read(path);
  EXPECT(refused(slipway::Program::load(file.data(), file.size(), options), SLIPWAY_USAGE));
  auto without = slipway::Program::load(path);
  EXPECT(without.ok() && !without->keep_weights().ok());
}

using Ids = std::vector<std::int64_t>;

// The likeliest ones after these.
Ids after(slipway::Session& session, Ids ids, int count) {
  Ids found;
  for (int i = 0; i < count; ++i) {
    const auto read = session.feed(ids);
    const auto next = session.sample();
    EXPECT(read.ok() && next.ok());
    ids = {next.ok() ? *next : 0};
    found.push_back(ids[0]);
  }
  return found;
}

// Two texts at once, errors, going back, and texts that were saved.
void check_sessions(const std::string& path, const std::string& other, const std::string& several,
                    const std::string& none) {
  const Ids prompt{1, 15, 27};
  auto program = slipway::Program::load(path);
  auto twin = slipway::Program::load(path);
  auto session = slipway::Session::create(*program);
  auto second = slipway::Session::create(*twin, "forward");
  EXPECT(session.ok() && second.ok());
  EXPECT(session->context() == 40 && session->position() == 0 && session->logits() == nullptr);
  EXPECT((session->stops() == Ids{63, 62}));
  const Ids text = after(*session, prompt, 12);
  std::size_t count = 0;
  EXPECT(session->logits(&count) != nullptr && count == 64);
  // Token by token in turns with the other, which has read something else before.
  EXPECT(second->feed({5, 6}).ok() && session->reset().ok() && second->truncate(0).ok());
  EXPECT(session->feed(prompt).ok());
  for (const std::int64_t id : prompt) {
    EXPECT(second->feed({id}).ok());
  }
  for (const std::int64_t id : text) {
    EXPECT(*session->sample() == id && *second->sample() == id);
    EXPECT(session->feed({id}).ok() && second->feed({id}).ok());
  }
  EXPECT(session->truncate(4).ok() && session->logits() == nullptr);
  EXPECT(refused(session->sample(), SLIPWAY_USAGE, "no scores"));
  EXPECT(refused(session->truncate(5), SLIPWAY_USAGE, "cannot go back to 5"));
  EXPECT(refused(session->truncate(-1), SLIPWAY_USAGE, "cannot go back to -1"));
  EXPECT(refused(session->feed({64}), SLIPWAY_INPUT, "Token 64 is outside"));
  EXPECT(refused(session->feed({}), SLIPWAY_INPUT, "no token"));
  EXPECT(refused(session->feed(Ids(37, 1)), SLIPWAY_INPUT, "A text of 41 tokens"));
  EXPECT(refused(session->feed_embeddings(nullptr, 0), SLIPWAY_USAGE, "no embeddings"));
  EXPECT(refused(session->set_sampling({-1, 0, 1, 0}), SLIPWAY_USAGE, "Sampling needs"));
  EXPECT(refused(session->set_sampling({1, 0, 0, 0}), SLIPWAY_USAGE, "Sampling needs"));
  EXPECT(refused(slipway::Session::create(*program), SLIPWAY_USAGE, "already"));
  EXPECT(refused(slipway::Session::create(*slipway::Program::load(none)), SLIPWAY_USAGE,
                 "does not read tokens"));
  EXPECT(
      refused(slipway::Session::create(*slipway::Program::load(path), "back"), SLIPWAY_USAGE, "not ready"));
  EXPECT(session->feed({text[1]}).ok() && *session->sample() == text[2]);
  // Of two caches 15 positions, at which something was read; 64 scores, and what tells them from others.
  const auto saved = session->save();
  EXPECT(saved.ok() && saved->size() < 15 * 2 * 128 + 64 * 4 + 300);
  const std::string file = path + ".saved";
  EXPECT(session->save(file).ok() && read(file) == Bytes(saved->begin(), saved->end()));
  EXPECT(refused(session->save(file + "/none"), SLIPWAY_OUTPUT));
  EXPECT(second->restore(file).ok() && second->position() == 5);
  EXPECT((after(*second, {*second->sample()}, 5) == Ids(text.begin() + 3, text.begin() + 8)));
  EXPECT(second->restore(*saved).ok() && second->feed({text[2]}).ok() && *second->sample() == text[3]);
  auto cut = *saved;
  cut.pop_back();
  EXPECT(refused(second->restore(cut), SLIPWAY_FILE, "damaged"));
  cut[cut.size() / 2] ^= 1;
  cut.push_back(saved->back());
  EXPECT(refused(second->restore(cut), SLIPWAY_FILE, "damaged"));
  EXPECT(refused(second->restore(path), SLIPWAY_FILE, "no saved text"));
  auto stranger = slipway::Program::load(other);
  auto third = slipway::Session::create(*stranger);
  EXPECT(refused(third->restore(file), SLIPWAY_INPUT, "another program"));
  EXPECT(second->position() == 6 && *second->sample() == text[3]);
  std::remove(file.c_str());
  // The program may have another session when this one is gone; and frees the last one.
  {
    const auto ended = std::move(*session);
  }
  slipway_session* last = nullptr;
  EXPECT(slipway_session_create(program->c_program(), nullptr, &last) == nullptr);
  EXPECT(slipway_session_position(last) == 0);
  slipway_session_free(nullptr);
  auto methods = slipway::Program::load(several);
  auto fourth = slipway::Session::create(*methods);
  EXPECT(fourth.ok() && fourth->width() == 32);
  EXPECT(after(*fourth, prompt, 12) == text && fourth->reset().ok());
  const auto rows = methods->execute("token_embedding",
                                     {slipway::from_blob(const_cast<std::int64_t*>(prompt.data()), {1, 3})});
  EXPECT(rows.ok() && fourth->feed({prompt[0]}).ok());
  EXPECT(fourth->feed_embeddings(rows->at(0).const_data<float>() + 32, 2).ok() &&
         *fourth->sample() == text[0]);
}

// What the process does at each signal.
std::vector<void (*)(int)> handlers() {
  std::vector<void (*)(int)> all;
#ifndef _WIN32
  for (int number = 1; number < 32; ++number) {
    struct sigaction action = {};
    EXPECT(::sigaction(number, nullptr, &action) == 0);
    all.push_back(action.sa_handler);
  }
#endif
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    return 2;
  }
  const auto before = handlers();
  EXPECT(slipway_abi_version() == SLIPWAY_ABI_VERSION);
  const Bytes one = run(slipway::Program::load(argv[1]));
  const Bytes two = run(slipway::Program::load(argv[2]));
  EXPECT(!one.empty() && !two.empty());
  check_sources(argv[1], one);
  check_errors(argv[1]);
  check_copies(argv[1], one);
  check_threads(argv[1], argv[2], one, two);
  check_weights_cache(argv[1], one);
  check_sessions(argv[3], argv[4], argv[5], argv[1]);
  EXPECT(handlers() == before);
  std::printf("slipway %s: %d failures\n", slipway_version(), failures.load());
  return failures == 0 ? 0 : 1;
}
