#include "runner/generate.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runner/inputs.h"
#include "runner/measure.h"

namespace slipway {
namespace {

using Clock = std::chrono::steady_clock;

Result<std::vector<std::int64_t>> read_prompt(const std::string& path) {
  const Result<Tensor> tensor = read_input(path);
  SLIPWAY_RETURN_IF_ERROR(tensor);
  const Shape& shape = tensor.value().shape;
  const bool row = shape.size() == 1 || (shape.size() == 2 && shape[0] == 1);
  if (tensor.value().dtype != DType::kInt64 || !row) {
    return Status(Code::kInput,
                  path + ": expected tokens, int64 [n], given " + name_of(tensor.value().dtype) + " " +
                      to_text(shape) + ".",
                  "give the numbers of the tokens, in one row", {path});
  }
  std::vector<std::int64_t> tokens(tensor.value().bytes.size() / sizeof(std::int64_t));
  std::memcpy(tokens.data(), tensor.value().bytes.data(), tokens.size() * sizeof(std::int64_t));
  return tokens;
}

Result<std::vector<Tensor>> run_once(Engine& engine, const std::string& method,
                                     const std::vector<Tensor>& inputs) {
  SLIPWAY_RETURN_IF_ERROR(engine.choose(method));
  SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
  SLIPWAY_RETURN_IF_ERROR(engine.execute());
  return engine.outputs();
}

Tensor tensor_of(DType dtype, const void* data, std::size_t count) {
  Tensor tensor{dtype, {static_cast<std::int64_t>(count)}, std::vector<std::uint8_t>(count * size_of(dtype))};
  std::memcpy(tensor.bytes.data(), data, tensor.bytes.size());
  return tensor;
}

}  // namespace

Result<Generated> generate(const Options& options, Engine& engine, const ProgramInfo& program,
                           const MethodInfo& method, const std::function<Status(std::int64_t)>& told) {
  const Result<std::vector<std::int64_t>> prompt = read_prompt(options.prompt_path);
  SLIPWAY_RETURN_IF_ERROR(prompt);
  Result<TextSession> opened = TextSession::open(
      program, method, [&engine](const std::string& name, const std::vector<Tensor>& inputs) {
        return run_once(engine, name, inputs);
      });
  SLIPWAY_RETURN_IF_ERROR(opened);
  TextSession& session = opened.value();
  std::vector<std::int64_t> stops = options.stops;
  if (options.own_stops) {
    stops.insert(stops.end(), session.model().stops.begin(), session.model().stops.end());
  }
  Sampler sampler(options.sampling);
  Generated found;
  found.model = session.model();
  found.prompt_tokens = static_cast<std::int64_t>(prompt.value().size());
  std::vector<std::int64_t> next = prompt.value();
  for (;;) {
    const Clock::time_point start = Clock::now();
    SLIPWAY_RETURN_IF_ERROR(session.read(next));
    const Result<std::int64_t> picked = session.pick(sampler);
    const double took = milliseconds_since(start);
    SLIPWAY_RETURN_IF_ERROR(picked);
    const std::int64_t token = picked.value();
    if (found.tokens.empty()) {
      found.prompt_ms = took;
      found.first_scores = session.scores();
    } else {
      found.token_ms.push_back(took);
    }
    found.tokens.push_back(token);
    SLIPWAY_RETURN_IF_ERROR(told(token));
    const bool stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
    if (stopped || found.tokens.size() >= options.generate || session.full()) {
      found.ended = stopped ? "stop" : found.tokens.size() >= options.generate ? "length" : "context";
      return found;
    }
    next = {token};
  }
}

std::vector<Tensor> outputs_of(const Generated& generated) {
  return {tensor_of(DType::kInt64, generated.tokens.data(), generated.tokens.size()),
          tensor_of(DType::kFloat32, generated.first_scores.data(), generated.first_scores.size())};
}

}  // namespace slipway
