#include "runner/measure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/platform.h"
#include "runner/inputs.h"

namespace slipway {
namespace {

// The count so far; 0 where nothing counts. The instruction changes nothing on any processor, and no compiler
// writes it; a machine that counts puts the count into its register. Not inlined: each call costs the same.
#if defined(__aarch64__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint64_t count __asm__("x0") = 0;
  __asm__ volatile(".inst 0xaa1f9400" : "+r"(count) : : "memory");  // orr x0, x0, xzr, lsl #37
  return count;
}
#elif defined(__arm__) && !defined(__thumb__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint32_t count __asm__("r0") = 0;
  __asm__ volatile(".inst 0xe3800700" : "+r"(count) : : "memory");  // orr r0, r0, #0, ror #14
  return count;
}
#else
std::uint64_t executed() {
  return 0;
}
#endif

// Instructions executed on an emulated machine of Slipway: toolchains/emulation/instructions.c counts them.
class InstructionCounter {
 public:
  // Finds out whether anything counts here, and what asking costs.
  InstructionCounter() {
    std::vector<std::uint64_t> costs;
    for (int i = 0; i < 9; ++i) {
      begin();
      costs.push_back(end());
    }
    cost_ = *std::min_element(costs.begin(), costs.end());
  }

  bool counts() const { return cost_ != 0; }

  // The beginning and the end of what is counted. end() returns the instructions between: of this process, in
  // user mode, with all its threads. Not inlined either, for the same reason.
  [[gnu::noinline]] void begin() { begin_ = executed(); }
  [[gnu::noinline]] std::uint64_t end() {
    // A count of 32 bits begins again at 0.
    const std::uint64_t all = executed() - begin_;
    const std::uint64_t between = sizeof(void*) == 4 ? static_cast<std::uint32_t>(all) : all;
    return between - std::min(between, cost_);
  }

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t cost_ = 0;
};

}  // namespace

Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, Measured* measured) {
  measured->latencies_ms.reserve(options.num_executions);
  std::optional<InstructionCounter> counter;
  if (options.count_instructions) {
    counter.emplace();
    measured->instructions.reserve(options.num_executions);
  }
  const unsigned warmup = std::max(options.warmup, engine.least_warmup());
  for (unsigned i = 0; i < warmup + options.num_executions; ++i) {
    // Each time: a program may reuse its inputs' memory for intermediate values.
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    const auto start = std::chrono::steady_clock::now();
    if (counter) {
      counter->begin();
    }
    const Status status = engine.execute();
    const std::uint64_t executed = counter ? counter->end() : 0;
    const double elapsed = milliseconds_since(start);
    if (!status.ok()) {
      return blame_inputs(status, method, inputs);
    }
    if (i < warmup) {
      continue;
    }
    measured->latencies_ms.push_back(elapsed);
    if (counter && counter->counts()) {
      measured->instructions.push_back(executed);
    }
  }
  return {};
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double nearest_rank(const std::vector<double>& sorted, double percent) {
  const auto count = static_cast<double>(sorted.size());
  // percent * count first: 0.9 * 10 is not 9 in binary, 90 * 10 / 100 is.
  const auto rank = static_cast<std::size_t>(std::ceil(percent * count / 100.0));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

LatencySummary summarize(std::vector<double> latencies) {
  if (latencies.empty()) {
    return {};
  }
  std::sort(latencies.begin(), latencies.end());
  const double sum = std::accumulate(latencies.begin(), latencies.end(), 0.0);
  return {latencies.front(),           nearest_rank(latencies, 10),
          nearest_rank(latencies, 50), nearest_rank(latencies, 90),
          nearest_rank(latencies, 99), sum / static_cast<double>(latencies.size())};
}

namespace {

using Clock = std::chrono::steady_clock;

Result<std::vector<std::int64_t>> read_prompt(const std::string& path) {
  SLIPWAY_TRY(const Tensor tensor, read_input(path));
  const Shape& shape = tensor.shape;
  const bool row = shape.size() == 1 || (shape.size() == 2 && shape[0] == 1);
  if (tensor.dtype != DType::kInt64 || !row) {
    return Status(
        Code::kInput,
        path + ": expected tokens, int64 [n], given " + name_of(tensor.dtype) + " " + to_text(shape) + ".",
        "give the numbers of the tokens, in one row", {path});
  }
  std::vector<std::int64_t> tokens(tensor.bytes.size() / sizeof(std::int64_t));
  std::memcpy(tokens.data(), tensor.bytes.data(), tokens.size() * sizeof(std::int64_t));
  return tokens;
}

template <typename Number>
Tensor row_of(DType dtype, const std::vector<Number>& numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return {dtype, {count}, bytes_at(numbers.data(), numbers.size() * sizeof(Number))};
}

// Reads `next`, and writes after it until something ends the text; adds to `found`.
Status write_answer(const Options& options, TextSession& session, Sampler& sampler,
                    std::vector<std::int64_t> next, const std::vector<std::int64_t>& stops,
                    const std::function<Status(std::int64_t)>& told, Generated* found) {
  found->prompt_tokens += static_cast<std::int64_t>(next.size());
  InstructionCounter counter;
  for (unsigned written = 1;; ++written) {
    const Clock::time_point start = Clock::now();
    counter.begin();
    SLIPWAY_RETURN_IF_ERROR(session.read(next));
    const Result<std::int64_t> picked = session.pick(sampler);
    const std::uint64_t executed = counter.end();
    const double took = milliseconds_since(start);
    SLIPWAY_RETURN_IF_ERROR(picked);
    if (options.count_instructions && counter.counts()) {
      found->instructions.push_back(executed);
    }
    const std::int64_t token = picked.value();
    if (found->tokens.empty()) {
      found->first_scores = session.scores();
    }
    if (written == 1) {
      found->prompt_ms += took;
    } else {
      found->token_ms.push_back(took);
    }
    found->tokens.push_back(token);
    SLIPWAY_RETURN_IF_ERROR(told(token));
    const bool stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
    if (stopped || written >= options.generate || session.full()) {
      found->ended = stopped ? "stop" : written >= options.generate ? "length" : "context";
      return {};
    }
    next = {token};
  }
}

// What comes after text number `turn`, as --turns has it; waits for it.
Result<std::vector<std::int64_t>> next_turn(unsigned turn) {
  const std::string name = "turn" + std::to_string(turn);
  while (!exists(name + ".end")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  SLIPWAY_TRY(std::vector<std::int64_t> read, read_prompt(name + ".npy"));
  if (read.empty()) {
    return Status(Code::kInput, name + ".npy is empty.", "begin it with the tokens that stay");
  }
  return read;
}

}  // namespace

Result<Generated> generate(const Options& options, Engine& engine, const ProgramInfo& program,
                           const MethodInfo& method, const TextListener& listener) {
  SLIPWAY_TRY(std::vector<std::int64_t> next, read_prompt(options.prompt_path));
  const auto run = [&engine](const std::string& name,
                             const std::vector<Tensor>& inputs) -> Result<std::vector<Tensor>> {
    SLIPWAY_RETURN_IF_ERROR(engine.choose(name));
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    SLIPWAY_RETURN_IF_ERROR(engine.execute());
    return engine.outputs();
  };
  SLIPWAY_TRY(TextSession session, TextSession::open(program, method, run));
  std::vector<std::int64_t> stops = options.stops;
  if (options.own_stops) {
    const std::vector<std::int64_t>& own = session.model().stops;
    stops.insert(stops.end(), own.begin(), own.end());
  }
  Sampler sampler(options.sampling);
  Generated found;
  found.model = session.model();
  for (unsigned turn = 1;; ++turn) {
    SLIPWAY_RETURN_IF_ERROR(
        write_answer(options, session, sampler, std::move(next), stops, listener.token, &found));
    if (!options.turns) {
      return found;
    }
    SLIPWAY_RETURN_IF_ERROR(listener.turn(found, session.position()));
    SLIPWAY_TRY(next, next_turn(turn));
    const std::int64_t kept = next.front();
    if (kept < 0) {
      return found;
    }
    SLIPWAY_RETURN_IF_ERROR(session.go_back(kept));
    next.erase(next.begin());
  }
}

std::vector<Tensor> outputs_of(const Generated& generated) {
  return {row_of(DType::kInt64, generated.tokens), row_of(DType::kFloat32, generated.first_scores)};
}

}  // namespace slipway
