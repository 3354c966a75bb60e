#include "text/session.h"

#include <algorithm>
#include <cstring>

namespace slipway {
namespace {

constexpr const char* kContext = "get_max_context_len";
constexpr const char* kLongest = "get_max_seq_len";
constexpr const char* kDynamic = "enable_dynamic_shape";
constexpr const char* kStops[] = {"get_eos_ids", "get_eos_id"};

const std::vector<std::int64_t>* find(const TextMetadata& metadata, const std::string& name) {
  const auto found =
      std::find_if(metadata.begin(), metadata.end(), [&](const auto& entry) { return entry.first == name; });
  return found == metadata.end() || found->second.empty() ? nullptr : &found->second;
}

Status no_text(const MethodInfo& method, const std::string& why) {
  return {Code::kUsage, "Method " + method.name + " does not read tokens: " + why + ".",
          "a program of export_llm or optimum-executorch: forward(tokens int64 [1, n], position int64 [1] or "
          "[n])"};
}

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

Tensor of_numbers(const std::int64_t* numbers, std::size_t count, const Shape& shape) {
  Tensor tensor{DType::kInt64, shape, std::vector<std::uint8_t>(count * sizeof(std::int64_t))};
  std::memcpy(tensor.bytes.data(), numbers, tensor.bytes.size());
  return tensor;
}

// The last `count` elements.
std::vector<float> last_of(const Tensor& tensor, std::size_t count) {
  std::vector<float> numbers(count);
  const std::size_t size = size_of(tensor.dtype);
  const std::uint8_t* begin = tensor.bytes.data() + tensor.bytes.size() - count * size;
  if (tensor.dtype == DType::kFloat32) {
    std::memcpy(numbers.data(), begin, count * size);
    return numbers;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, begin + i * size, size);
    numbers[i] = tensor.dtype == DType::kFloat16 ? float16_value(bits) : bfloat16_value(bits);
  }
  return numbers;
}

}  // namespace

std::vector<std::string> text_metadata_of(const ProgramInfo& program) {
  std::vector<std::string> names;
  for (const MethodInfo& method : program.methods) {
    const bool known = method.name == kContext || method.name == kLongest || method.name == kDynamic ||
                       std::find(std::begin(kStops), std::end(kStops), method.name) != std::end(kStops);
    if (known && method.inputs.empty()) {
      names.push_back(method.name);
    }
  }
  return names;
}

Result<TextModel> text_model_of(const MethodInfo& method, const TextMetadata& metadata) {
  if (method.inputs.size() != 2 || method.outputs.empty()) {
    return no_text(method, "it takes " + std::to_string(method.inputs.size()) + " inputs");
  }
  const ValueSpec& tokens = method.inputs[0];
  const ValueSpec& position = method.inputs[1];
  const ValueSpec& scores = method.outputs[0];
  const bool integers = tokens.dtype == DType::kInt64 && position.dtype == DType::kInt64;
  if (!integers || tokens.shape.size() != 2 || tokens.shape[0] != 1 || position.shape.size() != 1) {
    return no_text(method, std::string("its inputs are ") + name_of(tokens.dtype) + " " +
                               to_text(tokens.shape) + " and " + name_of(position.dtype) + " " +
                               to_text(position.shape));
  }
  const bool ranks = scores.shape.size() == 2 || scores.shape.size() == 3;
  if (!is_float(scores.dtype) || !ranks || scores.shape.back() <= 0) {
    return no_text(method,
                   std::string("its output is ") + name_of(scores.dtype) + " " + to_text(scores.shape));
  }
  TextModel model;
  model.method = method.name;
  model.vocabulary = scores.shape.back();
  const std::vector<std::int64_t>* longest = find(metadata, kLongest);
  const std::vector<std::int64_t>* context = find(metadata, kContext);
  context = context != nullptr ? context : longest;
  model.context = context != nullptr ? std::max<std::int64_t>(context->front(), 0) : 0;
  const bool open = tokens.dynamism != Dynamism::kStatic;
  if (!open && tokens.shape[1] != 1) {
    return no_text(method, "it reads exactly " + std::to_string(tokens.shape[1]) + " tokens at a time");
  }
  model.each_position = position.dynamism != Dynamism::kStatic;
  const std::vector<std::int64_t>* dynamic = find(metadata, kDynamic);
  if (open && (dynamic == nullptr || dynamic->front() != 0)) {
    model.at_once = tokens.dynamism == Dynamism::kBounded ? tokens.shape[1] : INT32_MAX;
    if (longest != nullptr && longest->front() > 0) {
      model.at_once = std::min(model.at_once, longest->front());
    }
    model.at_once = std::max<std::int64_t>(model.at_once, 1);
  }
  for (const char* name : kStops) {
    if (const std::vector<std::int64_t>* stops = find(metadata, name); stops != nullptr) {
      model.stops.insert(model.stops.end(), stops->begin(), stops->end());
    }
  }
  return model;
}

Status TextSession::execute(const std::int64_t* tokens, std::size_t count) {
  const auto wide = static_cast<std::int64_t>(count);
  std::vector<std::int64_t> places(model_.each_position ? count : 1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = position_ + static_cast<std::int64_t>(i);
  }
  Result<std::vector<Tensor>> outputs =
      execute_({of_numbers(tokens, count, {1, wide}),
                of_numbers(places.data(), places.size(), {static_cast<std::int64_t>(places.size())})});
  SLIPWAY_RETURN_IF_ERROR(outputs);
  const auto vocabulary = static_cast<std::size_t>(model_.vocabulary);
  const bool enough = !outputs.value().empty() && is_float(outputs.value()[0].dtype) &&
                      outputs.value()[0].bytes.size() >= vocabulary * size_of(outputs.value()[0].dtype);
  if (!enough) {
    return {Code::kExecution, "The model gave fewer scores than its vocabulary has tokens.",
            "export the program again"};
  }
  scores_ = last_of(outputs.value()[0], vocabulary);
  position_ += wide;
  return {};
}

Status TextSession::read(const std::vector<std::int64_t>& tokens) {
  if (tokens.empty()) {
    return {Code::kInput, "There is no token to read.", "give a prompt of at least one token"};
  }
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= model_.vocabulary) {
      return {Code::kInput,
              "Token " + std::to_string(token) + " is outside of the model's vocabulary of " +
                  std::to_string(model_.vocabulary) + " tokens.",
              "the tokenizer that belongs to this model"};
    }
  }
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (model_.context != 0 && count > model_.context - position_) {
    return {Code::kInput,
            "A text of " + std::to_string(position_ + count) + " tokens does not fit into the context of " +
                std::to_string(model_.context) + ".",
            "a shorter prompt, or export with a longer context"};
  }
  for (std::int64_t begin = 0; begin < count; begin += model_.at_once) {
    const std::int64_t piece = std::min(model_.at_once, count - begin);
    SLIPWAY_RETURN_IF_ERROR(execute(tokens.data() + begin, static_cast<std::size_t>(piece)));
  }
  return {};
}

Status TextSession::go_back(std::int64_t position) {
  if (position < 0 || position > position_) {
    return {Code::kUsage,
            "A text of " + std::to_string(position_) + " tokens cannot go back to " +
                std::to_string(position) + ".",
            "a position from 0 to the session's own"};
  }
  position_ = position;
  scores_.clear();
  return {};
}

}  // namespace slipway
