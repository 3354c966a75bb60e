#include "runner/crash_guard.h"

#include <utility>

#include "base/text.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

constexpr char kReport[] =
    "report it with the program, this message and pte_runner --capabilities --json; to tell a defect of this "
    "device apart, run it once more, then with --cpu_threads 1, then on another device";

struct Words {
  const char* name;
  const char* meaning;
  const char* first;  // what to look at before it is reported
};

Words words_of(Ending ending) {
  switch (ending) {
    case Ending::kSegment:
      return {"SIGSEGV", "it touched memory that is not its own", ""};
    case Ending::kBus:
      return {
          "SIGBUS", "memory could not be read: a disk that failed, or a file that was cut short meanwhile",
          "see that nothing writes to the program's file, and that the device's log tells of no disk errors; "
          "else "};
    case Ending::kInstruction:
      return {"SIGILL", "an instruction that this processor does not have",
              "compare the processor with what the bundle needs (pte_runner --capabilities, ./inv targets); "
              "else "};
    case Ending::kArithmetic:
      return {"SIGFPE", "it divided by zero", ""};
    case Ending::kAbort:
      return {"SIGABRT", "a check inside of the engine failed", ""};
    case Ending::kTime:
      break;
  }
  return {"SIGXCPU", "", ""};
}

}  // namespace

Status status_of(Ending ending, const std::string& doing) {
  const Words words = words_of(ending);
  if (ending == Ending::kTime) {
    return {
        Code::kLimit, "The processor time that is allowed was over while the engine " + doing + ".",
        "allow more (ulimit -t); a program that takes minutes to describe is not one that an exporter wrote"};
  }
  return {Code::kCrash,
          std::string("The engine crashed (") + words.name + ") while it " + doing + ": " + words.meaning +
              ". This is a defect of Slipway or of this device.",
          std::string(words.first) + kReport,
          {words.name}};
}

std::unique_ptr<CrashGuard> guard_while(const std::string& doing, const JsonWish& json) {
#ifdef SLIPWAY_SANITIZE
  static_cast<void>(doing);
  static_cast<void>(json);
  return nullptr;
#else
  AllLastWords all;
  for (std::size_t i = 0; i < kEndings; ++i) {
    const Status status = status_of(static_cast<Ending>(i), doing);
    all[i] = {printable(error_text(status)), json.wanted ? error_json(status) + "\n" : "",
              static_cast<int>(status.code())};
  }
  return std::make_unique<CrashGuard>(std::move(all), json.path);
#endif
}

}  // namespace slipway
