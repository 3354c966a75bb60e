// A language model that reads and writes tokens: its place in the text, and the scores of what comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// Constant methods of a program, as exporters of language models write them: "get_max_context_len" -> 2048.
// A method that gives several numbers (get_eos_ids) has them all.
using TextMetadata = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

// The names of constant methods that a session reads, as far as the program has them.
std::vector<std::string> text_metadata_of(const ProgramInfo& program);

// What a method that reads tokens declares: `(tokens int64 [1, n], position int64 [1] or [n])`, and scores
// `[1, vocabulary]` or `[1, n, vocabulary]`, as export_llm and optimum-executorch write it.
struct TextModel {
  std::string method;
  std::int64_t context = 0;  // tokens that its cache holds; 0: the program does not say
  std::int64_t at_once = 1;  // tokens that one execution reads at most
  std::int64_t vocabulary = 0;
  bool each_position = false;  // whether it wants the position of each token, and not the first one's alone
  std::vector<std::int64_t> stops;  // tokens that end a text
};

// kUsage where the method takes or gives something else.
Result<TextModel> text_model_of(const MethodInfo& method, const TextMetadata& metadata);

class TextSession {
 public:
  // Runs the model once; the outputs.
  using Execute = std::function<Result<std::vector<Tensor>>(const std::vector<Tensor>& inputs)>;

  TextSession(TextModel model, Execute execute) : model_(std::move(model)), execute_(std::move(execute)) {}

  const TextModel& model() const { return model_; }
  // Tokens that were read.
  std::int64_t position() const { return position_; }
  // Whether another token has room.
  bool full() const { return model_.context != 0 && position_ >= model_.context; }

  // Reads tokens, at least one, in as few executions as the model allows. Afterwards scores() are those of
  // the token that follows. kInput: no room for all of them (nothing is read then), or a token that the
  // vocabulary does not have.
  Status read(const std::vector<std::int64_t>& tokens);
  // One for each token of the vocabulary; empty before the first read().
  const std::vector<float>& scores() const { return scores_; }
  // Goes back: what was read after the first `position` tokens is forgotten. 0 begins another text.
  Status go_back(std::int64_t position);

 private:
  Status execute(const std::int64_t* tokens, std::size_t count);

  TextModel model_;
  Execute execute_;
  std::int64_t position_ = 0;
  std::vector<float> scores_;
};

}  // namespace slipway
