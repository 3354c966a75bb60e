// Changes every number of a program, one at a time, and sees what the engine makes of it.
//
//   sweep_program FILE                what there is: fields, patches; a JSON object
//   sweep_program FILE --list         the patches: number, path, old, new
//   sweep_program FILE --run          tries them: a JSON object a line for what was found, the sums at last
//
// Options: --first=N --count=N (a part of the patches), --every=N (each N-th of them), --cpu_seconds=N (of
// one patch).
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "exercise.h"
#include "fields.h"
#include "program_file.h"
#include "runner/report/json.h"

namespace slipway::fuzz {
namespace {

// Damaged programs tried one after another in a process of their own, which may crash, hang or eat memory.

enum class Outcome : std::uint8_t {
  kNone,
  kRan,       // to the end, twice
  kLoaded,    // its inputs are too large to be made
  kRefused,   // with words
  kWordless,  // refused without them: a finding, as the rest
  kDiffers,   // two runs, two answers: somebody read what nobody wrote
  kCrashed,
  kHung,
};

const char* name_of(Outcome outcome) {
  static const char* const kNames[] = {"none",     "ran",     "loaded",  "refused",
                                       "wordless", "differs", "crashed", "hung"};
  return kNames[static_cast<std::size_t>(outcome)];
}

bool is_finding(Outcome outcome) {
  return outcome == Outcome::kNone || outcome >= Outcome::kWordless;
}

struct Trial {
  Outcome outcome = Outcome::kNone;
  int code = 0;        // the runner's exit code of a refusal
  std::string report;  // what was printed last, of findings
};

// A program, and what is tried of it.
struct Plan {
  const std::vector<std::uint8_t>& file;
  const std::vector<Field>& fields;
  const std::vector<Patch>& patches;
  std::vector<std::size_t> chosen;  // numbers of patches, one for each trial
};

// Called for each trial, in their order.
using OnTrial = std::function<void(std::size_t i, const Trial& trial)>;

// What the trying process writes and the watching one reads.
struct Shared {
  std::atomic<std::size_t> at;
  struct Answer {
    Outcome outcome;
    std::uint8_t code;
  };
  Answer* answers;  // behind it
};

// Enough for every program of the zoo, and few enough for a loop without end to be refused for its rounds:
// what a profile keeps of each takes pages here.
constexpr unsigned kMostJumps = 300;

void on_abort(const char* message) {
  std::fprintf(stderr, "the engine gave up: %s\n", message);
  std::abort();
}

Shared::Answer answer_of(const Status& status, const Trace& trace) {
  if (status.ok()) {
    return {trace.executed != 0 ? Outcome::kRan : Outcome::kLoaded, 0};
  }
  return {status.message().empty() ? Outcome::kWordless : Outcome::kRefused,
          static_cast<std::uint8_t>(status.code())};
}

Shared::Answer attempt(Engine& engine, const std::string& path) {
  Trace trace;
  fill_memory_with(0x11);
  const Status status = exercise(engine, path, &trace);
  // Memory with another filling: the answer is the same, unless somebody read what nobody wrote.
  Trace second;
  fill_memory_with(0xEE);
  const Status again = exercise(engine, path, &second);
  if (again.ok() != status.ok() || (status.ok() && second.digest != trace.digest)) {
    std::fprintf(stderr, "first %s, then %s\n", status.ok() ? "an answer" : status.message().c_str(),
                 again.ok() ? "another answer" : again.message().c_str());
    return {Outcome::kDiffers, 0};
  }
  return answer_of(status, trace);
}

constexpr rlim_t kMostMemory = rlim_t{6} << 30;

[[noreturn]] void say(int signal, siginfo_t* info, void* /*context*/) {
  char text[80];
  const int length = std::snprintf(text, sizeof text, "signal %d at %p\n", signal, info->si_addr);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  void* calls[40];
  ::backtrace_symbols_fd(calls, ::backtrace(calls, 40), STDERR_FILENO);
  ::_exit(99);
}

// From now on a signal that ends the process prints itself and the calls that led there to standard error.
void keep_last_words() {
  static unsigned char stack[64 * 1024];
  void* loaded[1];
  ::backtrace(loaded, 1);  // loads what it needs, while memory can be had
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = say;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::sigaction(signal, &action, nullptr);
  }
  const rlimit limit = {kMostMemory, kMostMemory};
  ::setrlimit(RLIMIT_AS, &limit);
}

std::unique_ptr<Engine> make_engine_for_trials() {
  std::unique_ptr<Engine> engine = make_engine(on_abort);
  EngineOptions options;
  options.max_jumps = kMostJumps;
  return engine->configure(options).ok() ? std::move(engine) : nullptr;
}

[[noreturn]] void work(const Plan& plan, std::size_t first, Shared* shared) {
  keep_last_words();
  // One engine for many: what a program leaves behind in it must not harm the next.
  const std::unique_ptr<Engine> engine = make_engine_for_trials();
  const int program = ::memfd_create("program", MFD_CLOEXEC);
  const std::string path = "/proc/self/fd/" + std::to_string(program);
  const auto put = [program](const void* bytes, std::size_t size, std::size_t at) {
    return ::pwrite(program, bytes, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
  };
  bool good = put(plan.file.data(), plan.file.size(), 0);
  for (std::size_t i = first; i < plan.chosen.size() && good; ++i) {
    shared->at = i;
    const Patch& patch = plan.patches[plan.chosen[i]];
    const Field& field = plan.fields[patch.field];
    good = put(&patch.value, width_of(field.type), field.offset);
    if (::lseek(STDERR_FILENO, 0, SEEK_CUR) > 0) {
      good = ::ftruncate(STDERR_FILENO, 0) == 0 && ::lseek(STDERR_FILENO, 0, SEEK_SET) == 0 && good;
    }
    shared->answers[i] = good ? attempt(*engine, path) : Shared::Answer{Outcome::kNone, 0};
    if (shared->answers[i].outcome == Outcome::kDiffers) {
      shared->at = i + 1;
      ::_exit(0);  // the watching process takes the words over
    }
    good = put(plan.file.data() + field.offset, width_of(field.type), field.offset) && good;
  }
  if (!good) {
    ::_exit(9);
  }
  shared->at = plan.chosen.size();
  ::_exit(0);
}

constexpr std::size_t kMostWords = 12000;

// 0 of a process that has ended.
double seconds_on(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Waits for the process's end; true when it had to be ended since it used `limit` seconds of CPU, or waited
// 30 times as long, without `at` changing.
bool watch(pid_t process, const std::atomic<std::size_t>& at, std::size_t limit, int* ended) {
  constexpr double kWallFactor = 30;  // a machine may be busy with other things
  constexpr useconds_t kPause = 500;
  clockid_t processor = 0;
  ::clock_getcpuclockid(process, &processor);
  std::size_t reached = SIZE_MAX;
  double cpu = 0;
  double wall = 0;
  while (::waitpid(process, ended, WNOHANG) == 0) {
    const std::size_t now = at;
    if (now != reached) {
      reached = now;
      cpu = seconds_on(processor);
      wall = seconds_on(CLOCK_MONOTONIC);
    } else if (seconds_on(processor) - cpu > static_cast<double>(limit) ||
               seconds_on(CLOCK_MONOTONIC) - wall > kWallFactor * static_cast<double>(limit)) {
      ::kill(process, SIGKILL);
      ::waitpid(process, ended, 0);
      return true;
    }
    ::usleep(kPause);
  }
  return false;
}

// What was written to a file, its beginning if it is long.
std::string words_of(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string text(size < 0 ? 0 : std::min<std::size_t>(static_cast<std::size_t>(size), kMostWords), '\0');
  const ssize_t read = ::pread(file, text.data(), text.size(), 0);
  text.resize(read < 0 ? 0 : static_cast<std::size_t>(read));
  return text;
}

// Tries the program with each of the plan's patches; one may take so many seconds of CPU. False when there
// are no processes to be had.
bool try_all(const Plan& plan, std::size_t cpu_seconds, const OnTrial& on_trial) {
  const std::size_t count = plan.chosen.size();
  const std::size_t bytes = sizeof(Shared) + count * sizeof(Shared::Answer);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  auto* shared = new (memory) Shared{};
  shared->answers = reinterpret_cast<Shared::Answer*>(shared + 1);
  std::size_t next = 0;
  while (next < count) {
    const int words = ::memfd_create("words", MFD_CLOEXEC);
    shared->at = next;
    const pid_t process = ::fork();
    if (process < 0) {
      return false;
    }
    if (process == 0) {
      ::dup2(words, STDERR_FILENO);
      work(plan, next, shared);
    }
    int ended = 0;
    const bool hung = watch(process, shared->at, cpu_seconds, &ended);
    const std::size_t reached = shared->at;
    const std::string report = words_of(words);
    ::close(words);
    for (; next < reached; ++next) {
      const Shared::Answer answer = shared->answers[next];
      on_trial(next, {answer.outcome, answer.code, next + 1 == reached ? report : ""});
    }
    if (reached < count && (hung || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0)) {
      on_trial(next++, {hung ? Outcome::kHung : Outcome::kCrashed, 0, report});
    }
  }
  ::munmap(memory, bytes);
  return true;
}

struct Arguments {
  std::string file;
  std::map<std::string, std::string> options;

  bool has(const char* name) const { return options.count(name) != 0; }
  std::size_t number(const char* name, std::size_t otherwise) const {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
  }
};

Arguments parse(int argc, char** argv) {
  Arguments given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.compare(0, 2, "--") != 0) {
      given.file = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    given.options[word.substr(2, equals == std::string::npos ? equals : equals - 2)] = value;
  }
  return given;
}

void print_finding(const Plan& plan, std::size_t number, const Trial& trial) {
  const Patch& patch = plan.patches[number];
  const Field& field = plan.fields[patch.field];
  JsonWriter json;
  json.object("patch", number, "path", field.path, "was", shown(field, stored(plan.file.data(), field)),
              "now", shown(field, patch.value), "outcome", name_of(trial.outcome), "report", trial.report);
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);
}

// The numbers of the patches that the options choose.
std::vector<std::size_t> choose(std::size_t patches, const Arguments& given) {
  const std::size_t every = std::max<std::size_t>(given.number("every", 1), 1);
  const std::size_t first = given.number("first", 0);
  const std::size_t count = given.number("count", patches);
  std::vector<std::size_t> chosen;
  for (std::size_t i = first; i < patches && i - first < count; i += every) {
    chosen.push_back(i);
  }
  return chosen;
}

int run(const Plan& plan, std::size_t cpu_seconds) {
  std::map<std::string, std::size_t> sums;
  const bool done = try_all(plan, cpu_seconds, [&](std::size_t i, const Trial& trial) {
    const bool refused = trial.outcome == Outcome::kRefused;
    ++sums[refused ? "refused-" + std::to_string(trial.code) : name_of(trial.outcome)];
    if (is_finding(trial.outcome)) {
      print_finding(plan, plan.chosen[i], trial);
    }
  });
  JsonWriter json;
  json.begin_object().members("fields", plan.fields.size(), "patches", plan.patches.size(), "tried",
                              plan.chosen.size());
  std::printf("%s\n", json.key("sums").object_of(sums).end_object().text().c_str());
  return done ? 0 : 1;
}

// Does on purpose what a sweep is to see: whether that ends the process tells whether it can.
int commit(const std::string& fault) {
  constexpr std::size_t kSize = 100;
  keep_last_words();
  auto* memory = static_cast<volatile char*>(std::malloc(kSize));
  if (memory == nullptr) {
    return 9;
  }
  if (fault == "write-behind") {
    memory[kSize] = 1;
  } else if (fault == "write-before") {
    memory[-1] = 1;
  } else if (fault == "read-far") {
    memory[0] = memory[kSize + 64];
  } else if (fault == "undefined") {
    const volatile int bits = 40;
    memory[0] = static_cast<char>(1 << bits);
  } else {
    return 2;
  }
  std::free(const_cast<char*>(memory));
  return 0;
}

int main_of(int argc, char** argv) {
  const Arguments given = parse(argc, argv);
  if (given.has("fault")) {
    return commit(given.options.at("fault"));
  }
  std::ifstream stream(given.file, std::ios::binary);
  const std::vector<char> read{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::vector<std::uint8_t> file(read.begin(), read.end());
  const auto program = check_program(file.data(), file.size(), given.file);
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().message().c_str());
    return 3;
  }
  const std::vector<Field> fields = find_fields(file.data(), file.size());
  const std::vector<Patch> patches = plan_patches(file.data(), fields);
  if (given.has("run")) {
    return run({file, fields, patches, choose(patches.size(), given)}, given.number("cpu_seconds", 10));
  }
  if (given.has("list")) {
    for (std::size_t i = 0; i < patches.size(); ++i) {
      const Field& field = fields[patches[i].field];
      std::printf("%zu\t%s\t%s\t%s\n", i, field.path.c_str(),
                  shown(field, stored(file.data(), field)).c_str(), shown(field, patches[i].value).c_str());
    }
    return 0;
  }
  std::printf("{\"fields\":%zu,\"patches\":%zu}\n", fields.size(), patches.size());
  return 0;
}

}  // namespace
}  // namespace slipway::fuzz

int main(int argc, char** argv) {
  return slipway::fuzz::main_of(argc, argv);
}
