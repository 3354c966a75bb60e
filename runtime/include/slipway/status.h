// What every fallible function returns. Nothing of ours throws on purpose; no exception leaves an engine.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace slipway {

// The values are pte_runner's exit codes: a status that reaches main() is the answer to the shell.
enum class Code : int {
  kOk = 0,
  kUsage = 2,
  kFile = 3,
  kMissingOperator = 4,
  kMissingBackend = 5,
  kInput = 6,
  kExecution = 7,
  kOutput = 8,
  kMemory = 9,
  kCrash = 10,  // a defect of Slipway's, of the engine or of the device; never the user's
  kLimit = 11,  // more rounds than were allowed
};

// The name of a code in JSON: "usage", "file", "missing-operator", ...
const char* kind_of(Code code);

// An outcome. A failure says what happened, how to fix it, and which things (operators, files) it concerns.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string fix = {}, std::vector<std::string> names = {})
      : failure_(
            std::make_shared<Failure>(Failure{code, std::move(message), std::move(fix), std::move(names)})) {}

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure().code; }
  const std::string& message() const { return failure().message; }
  const std::string& fix() const { return failure().fix; }
  const std::vector<std::string>& names() const { return failure().names; }
  // As a Result has it.
  const Status& status() const { return *this; }

 private:
  struct Failure {
    Code code = Code::kOk;
    std::string message;
    std::string fix;
    std::vector<std::string> names;
  };
  const Failure& failure() const {
    static const Failure kNone;
    return failure_ == nullptr ? kNone : *failure_;
  }

  // Outside: most outcomes are none, and kernels of a few elements give several.
  std::shared_ptr<const Failure> failure_;
};

// The failure where the system gave no memory.
Status out_of_memory();

// A value, or the status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}           // NOLINT(google-explicit-constructor)
  Result(Status failure) : state_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  // Only when ok().
  T& value() { return *std::get_if<T>(&state_); }
  const T& value() const { return *std::get_if<T>(&state_); }
  // Only when not ok().
  const Status& status() const { return *std::get_if<Status>(&state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace slipway

// Leaves the function with the failure of `outcome`, a Status or a Result; goes on when there is none.
#define SLIPWAY_RETURN_IF_ERROR(outcome)     \
  do {                                       \
    const auto& slipway_outcome = (outcome); \
    if (!slipway_outcome.ok()) {             \
      return slipway_outcome.status();       \
    }                                        \
  } while (false)

// Declares a variable with the value of a Result, or leaves the function with its failure:
// SLIPWAY_TRY(const MappedFile file, MappedFile::open(path));
#define SLIPWAY_TRY(variable, ...) SLIPWAY_TRY_IN(__LINE__, variable, __VA_ARGS__)
#define SLIPWAY_TRY_IN(line, variable, ...) SLIPWAY_TRY_AS(line, variable, __VA_ARGS__)
#define SLIPWAY_TRY_AS(line, variable, ...)   \
  auto slipway_result_##line = (__VA_ARGS__); \
  if (!slipway_result_##line.ok()) {          \
    return slipway_result_##line.status();    \
  }                                           \
  variable = std::move(slipway_result_##line.value())
