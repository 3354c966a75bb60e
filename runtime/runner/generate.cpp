#include "runner/generate.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runner/inputs.h"
#include "runner/measure.h"

namespace slipway {
namespace {

using Clock = std::chrono::steady_clock;

// The numbers that a method without inputs gives.
Result<std::vector<std::int64_t>> numbers_of(Engine& engine, const std::string& method) {
  SLIPWAY_RETURN_IF_ERROR(engine.choose(method));
  SLIPWAY_RETURN_IF_ERROR(engine.set_inputs({}));
  SLIPWAY_RETURN_IF_ERROR(engine.execute());
  const Result<std::vector<Tensor>> outputs = engine.outputs();
  SLIPWAY_RETURN_IF_ERROR(outputs);
  std::vector<std::int64_t> numbers;
  for (const Tensor& output : outputs.value()) {
    std::int64_t number = 0;
    const bool flag = output.dtype == DType::kBool && output.bytes.size() == 1;
    if (flag || (output.dtype == DType::kInt64 && output.bytes.size() == sizeof number)) {
      std::memcpy(&number, output.bytes.data(), output.bytes.size());
      numbers.push_back(number);
    }
  }
  return numbers;
}

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

Result<std::vector<Tensor>> run_once(Engine& engine, const std::vector<Tensor>& inputs) {
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
  TextMetadata metadata;
  for (const std::string& name : text_metadata_of(program)) {
    Result<std::vector<std::int64_t>> numbers = numbers_of(engine, name);
    SLIPWAY_RETURN_IF_ERROR(numbers);
    metadata.emplace_back(name, std::move(numbers.value()));
  }
  Result<TextModel> model = text_model_of(method, metadata);
  SLIPWAY_RETURN_IF_ERROR(model);
  SLIPWAY_RETURN_IF_ERROR(engine.choose(method.name));
  std::vector<std::int64_t> stops = options.stops;
  if (options.own_stops) {
    stops.insert(stops.end(), model.value().stops.begin(), model.value().stops.end());
  }
  TextSession session(std::move(model.value()),
                      [&](const std::vector<Tensor>& inputs) { return run_once(engine, inputs); });
  Sampler sampler(options.sampling);
  Generated found;
  found.model = session.model();
  found.prompt_tokens = static_cast<std::int64_t>(prompt.value().size());
  std::vector<std::int64_t> next = prompt.value();
  for (;;) {
    const Clock::time_point start = Clock::now();
    SLIPWAY_RETURN_IF_ERROR(session.read(next));
    const std::int64_t token = sampler.pick(session.scores().data(), session.scores().size());
    const double took = milliseconds_since(start);
    if (token < 0) {
      return Status(Code::kExecution, "The model's scores are not numbers.",
                    "check the program's weights, or its numbers with ./inv inspect");
    }
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
