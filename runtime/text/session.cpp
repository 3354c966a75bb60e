#include "text/session.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace slipway {
namespace {

constexpr const char* kContext = "get_max_context_len";
constexpr const char* kLongest = "get_max_seq_len";
constexpr const char* kDynamic = "enable_dynamic_shape";
constexpr const char* kStops[] = {"get_eos_ids", "get_eos_id"};
constexpr const char* kEmbedding = "token_embedding";

bool is_metadata(const MethodInfo& method) {
  const bool known = method.name == kContext || method.name == kLongest || method.name == kDynamic ||
                     std::find(std::begin(kStops), std::end(kStops), method.name) != std::end(kStops);
  return known && method.inputs.empty();
}

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

template <typename Number>
Tensor tensor_of(DType dtype, const Number* numbers, const Shape& shape) {
  std::size_t count = 0;
  count_elements(shape, sizeof(Number), &count);
  return {dtype, shape, bytes_at(numbers, count * sizeof(Number))};
}

// The numbers that a method without inputs gave.
std::vector<std::int64_t> numbers_of(const std::vector<Tensor>& outputs) {
  std::vector<std::int64_t> numbers;
  for (const Tensor& output : outputs) {
    std::int64_t number = 0;
    const bool flag = output.dtype == DType::kBool && output.bytes.size() == 1;
    if (flag || (output.dtype == DType::kInt64 && output.bytes.size() == sizeof number)) {
      std::memcpy(&number, output.bytes.data(), output.bytes.size());
      numbers.push_back(number);
    }
  }
  return numbers;
}

// The tokens that a method reads at once, by its first input's shape `[1, n]` or `[1, n, width]`.
std::int64_t at_once_by(const ValueSpec& tokens) {
  return tokens.dynamism == Dynamism::kUnbounded ? INT32_MAX : tokens.shape[1];
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

std::vector<std::string> text_methods_of(const ProgramInfo& program) {
  std::vector<std::string> names;
  for (const MethodInfo& method : program.methods) {
    if (is_metadata(method) || method.name == kEmbedding) {
      names.push_back(method.name);
    }
  }
  return names;
}

Result<TextModel> text_model_of(const MethodInfo& method, const TextMetadata& metadata,
                                const MethodInfo* embedding) {
  if (method.inputs.size() != 2 || method.outputs.empty()) {
    return no_text(method, "it takes " + std::to_string(method.inputs.size()) + " inputs");
  }
  const ValueSpec& tokens = method.inputs[0];
  const ValueSpec& position = method.inputs[1];
  const ValueSpec& scores = method.outputs[0];
  const bool rows = tokens.dtype == DType::kFloat32 && tokens.shape.size() == 3 && tokens.shape[2] > 0;
  const bool reads = rows || (tokens.dtype == DType::kInt64 && tokens.shape.size() == 2);
  if (!reads || tokens.shape[0] != 1 || position.dtype != DType::kInt64 || position.shape.size() != 1) {
    return no_text(method, std::string("its inputs are ") + name_of(tokens.dtype) + " " +
                               to_text(tokens.shape) + " and " + name_of(position.dtype) + " " +
                               to_text(position.shape));
  }
  const bool ranks = scores.shape.size() == 2 || scores.shape.size() == 3;
  if (!is_float(scores.dtype) || !ranks || scores.shape.back() <= 0) {
    return no_text(method,
                   std::string("its output is ") + name_of(scores.dtype) + " " + to_text(scores.shape));
  }
  if (rows && (embedding == nullptr || embedding->inputs.size() != 1 || embedding->outputs.size() != 1 ||
               embedding->inputs[0].dtype != DType::kInt64 || embedding->inputs[0].shape.size() != 2 ||
               embedding->outputs[0].dtype != DType::kFloat32 || embedding->outputs[0].shape.size() != 3 ||
               embedding->outputs[0].shape[2] != tokens.shape[2])) {
    return no_text(method, std::string("it reads embeddings, and no method ") + kEmbedding +
                               " that makes them of tokens is ready");
  }
  TextModel model;
  model.method = method.name;
  model.vocabulary = scores.shape.back();
  model.width = rows ? tokens.shape[2] : 0;
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
    model.at_once =
        rows ? std::min(at_once_by(tokens), at_once_by(embedding->inputs[0])) : at_once_by(tokens);
    if (longest != nullptr && longest->front() > 0) {
      model.at_once = std::min(model.at_once, longest->front());
    }
    model.at_once = std::max<std::int64_t>(model.at_once, 1);
  }
  for (const char* name : kStops) {
    if (const std::vector<std::int64_t>* stops = find(metadata, name); stops != nullptr) {
      std::copy_if(stops->begin(), stops->end(), std::back_inserter(model.stops), [&](std::int64_t stop) {
        return std::find(model.stops.begin(), model.stops.end(), stop) == model.stops.end();
      });
    }
  }
  return model;
}

Result<TextSession> TextSession::open(const ProgramInfo& program, const MethodInfo& method, Execute execute) {
  TextMetadata metadata;
  const MethodInfo* embedding = nullptr;
  for (const MethodInfo& other : program.methods) {
    embedding = other.name == kEmbedding ? &other : embedding;
    if (is_metadata(other)) {
      SLIPWAY_TRY(const std::vector<Tensor> outputs, execute(other.name, {}));
      metadata.emplace_back(other.name, numbers_of(outputs));
    }
  }
  SLIPWAY_TRY(TextModel model, text_model_of(method, metadata, embedding));
  return TextSession(std::move(model), std::move(execute));
}

Status TextSession::check_room(std::size_t count) const {
  if (count == 0) {
    return {Code::kInput, "There is no token to read.", "give a prompt of at least one token"};
  }
  // Also of a program that does not say how much it holds.
  const std::int64_t most = model_.context != 0 ? model_.context : INT32_MAX;
  if (count > static_cast<std::uint64_t>(std::max<std::int64_t>(most - position_, 0))) {
    return {Code::kInput,
            "A text of " + std::to_string(static_cast<std::uint64_t>(position_) + count) +
                " tokens does not fit into the context of " + std::to_string(most) + ".",
            "a shorter prompt, or export with a longer context"};
  }
  return {};
}

Status TextSession::execute(Tensor tokens, std::int64_t count) {
  std::vector<std::int64_t> places(model_.each_position ? static_cast<std::size_t>(count) : 1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = position_ + static_cast<std::int64_t>(i);
  }
  const Shape row{static_cast<std::int64_t>(places.size())};
  SLIPWAY_TRY(const std::vector<Tensor> outputs,
              execute_(model_.method, {std::move(tokens), tensor_of(DType::kInt64, places.data(), row)}));
  const auto vocabulary = static_cast<std::size_t>(model_.vocabulary);
  const bool enough = !outputs.empty() && is_float(outputs[0].dtype) &&
                      outputs[0].bytes.size() >= vocabulary * size_of(outputs[0].dtype);
  if (!enough) {
    return {Code::kExecution, "The model gave fewer scores than its vocabulary has tokens.",
            "export the program again"};
  }
  scores_ = last_of(outputs[0], vocabulary);
  position_ += count;
  return {};
}

Status TextSession::read(const std::int64_t* tokens, std::size_t count) {
  SLIPWAY_RETURN_IF_ERROR(check_room(count));
  for (std::size_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= model_.vocabulary) {
      return {Code::kInput,
              "Token " + std::to_string(tokens[i]) + " is outside of the model's vocabulary of " +
                  std::to_string(model_.vocabulary) + " tokens.",
              "the tokenizer that belongs to this model"};
    }
  }
  const auto all = static_cast<std::int64_t>(count);
  for (std::int64_t begin = 0; begin < all; begin += model_.at_once) {
    const std::int64_t piece = std::min(model_.at_once, all - begin);
    Tensor given = tensor_of(DType::kInt64, tokens + begin, {1, piece});
    if (model_.width != 0) {
      SLIPWAY_TRY(std::vector<Tensor> rows, execute_(kEmbedding, {given}));
      given = std::move(rows.front());
    }
    SLIPWAY_RETURN_IF_ERROR(execute(std::move(given), piece));
  }
  return {};
}

Status TextSession::read_rows(const float* rows, std::size_t count) {
  if (model_.width == 0) {
    return {Code::kUsage, "Method " + model_.method + " reads tokens, and no embeddings.",
            "give it the numbers of tokens"};
  }
  SLIPWAY_RETURN_IF_ERROR(check_room(count));
  const auto all = static_cast<std::int64_t>(count);
  for (std::int64_t begin = 0; begin < all; begin += model_.at_once) {
    const std::int64_t piece = std::min(model_.at_once, all - begin);
    const Shape shape{1, piece, model_.width};
    SLIPWAY_RETURN_IF_ERROR(execute(tensor_of(DType::kFloat32, rows + begin * model_.width, shape), piece));
  }
  return {};
}

Result<std::int64_t> TextSession::pick(Sampler& sampler) const {
  if (scores_.empty()) {
    return Status(Code::kUsage, "There are no scores to choose the next token by.",
                  "give the model a token to read first");
  }
  const std::int64_t token = sampler.pick(scores_.data(), scores_.size());
  if (token < 0) {
    return Status(Code::kExecution, "The model's scores are not numbers.",
                  "check the program's weights, or its numbers with ./inv inspect");
  }
  return token;
}

Status TextSession::go_back(std::int64_t position) {
  if (position < 0 || position > position_) {
    return {Code::kUsage,
            "A text of " + std::to_string(position_) + " tokens cannot go back to " +
                std::to_string(position) + ".",
            "a position from 0 to the session's own"};
  }
  if (position < position_) {
    go_on(position, {});
  }
  return {};
}

void TextSession::go_on(std::int64_t position, std::vector<float> scores) {
  position_ = position;
  scores_ = std::move(scores);
}

namespace {

// The head: these words, four of each part (its bytes, those stored, their checksum), and a checksum of all.
constexpr std::uint64_t kMagic = 0x3154584554504C53;  // "SLPTEXT1"
enum Word : std::size_t { kFormat, kOwner, kPosition = kOwner + 2, kParts, kTable };
constexpr std::size_t kPartWords = 4;

std::size_t without_zeros(const std::uint8_t* data, std::size_t size) {
  std::uint64_t word = 0;
  while (size >= sizeof word) {
    std::memcpy(&word, data + size - sizeof word, sizeof word);
    if (word != 0) {
      break;
    }
    size -= sizeof word;
  }
  while (size > 0 && size < sizeof word && data[size - 1] == 0) {
    --size;
  }
  return size;
}

Status damaged(const std::string& name) {
  return {Code::kFile,
          name + " is damaged: its checksums do not fit.",
          "let the model read the text again, and save it again",
          {name}};
}

}  // namespace

std::vector<FilePart> save_text(const TextSession& session, const StateMemory& memory, const Checksum& owner,
                                std::vector<std::uint64_t>* head) {
  const std::vector<float>& scores = session.scores();
  std::vector<FilePart> parts(1);
  *head = {kMagic, owner.first, owner.second, static_cast<std::uint64_t>(session.position()),
           memory.size() + 1};
  const auto add = [&](const void* data, std::size_t size, std::size_t stored) {
    const Checksum sum = checksum_of(data, stored);
    head->insert(head->end(), {size, stored, sum.first, sum.second});
    parts.push_back({data, stored});
  };
  for (const auto& [data, size] : memory) {
    add(data, size, without_zeros(data, size));
  }
  add(scores.data(), scores.size() * sizeof(float), scores.size() * sizeof(float));
  const Checksum sum = checksum_of(head->data(), head->size() * sizeof(std::uint64_t));
  head->insert(head->end(), {sum.first, sum.second});
  parts.front() = {head->data(), head->size() * sizeof(std::uint64_t)};
  return parts;
}

Status restore_text(const std::uint8_t* data, std::size_t size, const std::string& name,
                    const Checksum& owner, const StateMemory& memory, TextSession* session) {
  std::vector<std::uint64_t> head(kTable);
  if (size >= kTable * sizeof(std::uint64_t)) {
    std::memcpy(head.data(), data, kTable * sizeof(std::uint64_t));
  }
  if (head[kFormat] != kMagic) {
    return {Code::kFile, name + " is no saved text.", "give what a session saved", {name}};
  }
  const std::size_t most = size / sizeof(std::uint64_t) / kPartWords;
  const std::size_t words =
      head[kParts] <= most ? kTable + kPartWords * static_cast<std::size_t>(head[kParts]) + 2 : SIZE_MAX;
  if (words > size / sizeof(std::uint64_t)) {
    return damaged(name);
  }
  head.resize(words);
  std::memcpy(head.data(), data, words * sizeof(std::uint64_t));
  if (checksum_of(head.data(), (words - 2) * sizeof(std::uint64_t)) !=
      Checksum{head[words - 2], head[words - 1]}) {
    return damaged(name);
  }
  if (Checksum{head[kOwner], head[kOwner + 1]} != owner) {
    return {Code::kInput,
            name + " is of another program or method.",
            "restore it with the program that saved it, weights included",
            {name}};
  }
  const TextModel& model = session->model();
  const std::uint64_t position = head[kPosition];
  const std::uint64_t longest = model.context != 0 ? static_cast<std::uint64_t>(model.context) : INT32_MAX;
  const auto vocabulary = static_cast<std::size_t>(model.vocabulary);
  if (head[kParts] != memory.size() + 1 || position > longest) {
    return damaged(name);
  }
  std::vector<const std::uint8_t*> stored;
  const std::uint8_t* next = data + words * sizeof(std::uint64_t);
  for (std::size_t i = 0; i <= memory.size(); ++i) {
    const std::uint64_t* part = head.data() + kTable + kPartWords * i;
    const bool fits = i < memory.size()
                          ? part[0] == memory[i].second && part[1] <= part[0]
                          : (part[0] == 0 || part[0] == vocabulary * sizeof(float)) && part[1] == part[0];
    if (!fits || part[1] > static_cast<std::size_t>(data + size - next) ||
        checksum_of(next, static_cast<std::size_t>(part[1])) != Checksum{part[2], part[3]}) {
      return damaged(name);
    }
    stored.push_back(next);
    next += static_cast<std::size_t>(part[1]);
  }
  if (next != data + size) {
    return damaged(name);
  }
  std::vector<float> scores(static_cast<std::size_t>(head[words - 2 - kPartWords]) / sizeof(float));
  if (!scores.empty()) {
    std::memcpy(scores.data(), stored.back(), scores.size() * sizeof(float));
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto [place, bytes] = memory[i];
    const auto kept = static_cast<std::size_t>(head[kTable + kPartWords * i + 1]);
    std::memcpy(place, stored[i], kept);
    // What is zero already stays untouched: pages that no text has reached take no memory.
    std::memset(place + kept, 0, without_zeros(place + kept, bytes - kept));
  }
  session->go_on(static_cast<std::int64_t>(position), std::move(scores));
  return {};
}

}  // namespace slipway
