// A language model that reads and writes tokens: its place in the text, and the scores of what comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/platform.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"
#include "text/sampler.h"

namespace slipway {

// Constant methods of a program, as exporters of language models write them: "get_max_context_len" -> 2048.
// A method that gives several numbers (get_eos_ids) has them all.
using TextMetadata = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

// The methods that a session runs besides its own, if the program has them: constant ones, "token_embedding".
std::vector<std::string> text_methods_of(const ProgramInfo& program);

// What a method that reads tokens declares: `(tokens int64 [1, n], position int64 [1] or [n])`, and scores
// `[1, vocabulary]` or `[1, n, vocabulary]`, as export_llm and optimum-executorch write it. In a program of
// several methods it reads embeddings, `float32 [1, n, width]`, which "token_embedding" makes of tokens and
// other methods of pictures and sounds.
struct TextModel {
  std::string method;
  std::int64_t context = 0;  // tokens that its cache holds; 0: the program does not say
  std::int64_t at_once = 1;  // tokens that one execution reads at most
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;      // numbers of an embedding; 0: it reads tokens
  bool each_position = false;  // whether it wants the position of each token, and not the first one's alone
  std::vector<std::int64_t> stops;  // tokens that end a text, each once
};

// kUsage where the method takes or gives something else. `embedding`: the program's "token_embedding".
Result<TextModel> text_model_of(const MethodInfo& method, const TextMetadata& metadata,
                                const MethodInfo* embedding = nullptr);

class TextSession {
 public:
  // Runs a method of the program once; the outputs.
  using Execute = std::function<Result<std::vector<Tensor>>(const std::string& method,
                                                            const std::vector<Tensor>& inputs)>;

  // Runs text_methods_of(program) for what they say. kUsage as text_model_of.
  static Result<TextSession> open(const ProgramInfo& program, const MethodInfo& method, Execute execute);

  TextSession(TextModel model, Execute execute) : model_(std::move(model)), execute_(std::move(execute)) {}

  const TextModel& model() const { return model_; }
  // Tokens that were read.
  std::int64_t position() const { return position_; }
  // Whether another token has room.
  bool full() const { return model_.context != 0 && position_ >= model_.context; }

  // Reads tokens, at least one, in as few executions as the model allows; scores() are then the following
  // token's. kInput: no room for all of them, or one that the vocabulary lacks; nothing is read then.
  Status read(const std::int64_t* tokens, std::size_t count);
  Status read(const std::vector<std::int64_t>& tokens) { return read(tokens.data(), tokens.size()); }
  // The same of embeddings, `count` rows of the model's width. kUsage for a model that reads tokens alone.
  Status read_rows(const float* rows, std::size_t count);
  // One for each token of the vocabulary; empty before the first read().
  const std::vector<float>& scores() const { return scores_; }
  // The next token by these scores, which is not read. kUsage without scores, kExecution if none is a number.
  Result<std::int64_t> pick(Sampler& sampler) const;
  // Goes back: what was read after the first `position` tokens is forgotten. 0 begins another text.
  Status go_back(std::int64_t position);
  // Takes up a text that was saved: so many tokens were read, and these were the scores then.
  void go_on(std::int64_t position, std::vector<float> scores);

 private:
  Status check_room(std::size_t count) const;
  // Reads what one execution can.
  Status execute(Tensor tokens, std::int64_t count);

  TextModel model_;
  Execute execute_;
  std::int64_t position_ = 0;
  std::vector<float> scores_;
};

// A session's text kept for later: what the model remembers of it, where it stands, and its scores.

// Memory in which an execution leaves for the next one what it remembers: address and bytes.
using StateMemory = std::vector<std::pair<std::uint8_t*, std::size_t>>;

// The parts of the file, one after the other; zeros at the end of each memory are left out. They lie in the
// memory, in the session and in `head`. `owner`: of the program and the method, which restore_text compares.
std::vector<FilePart> save_text(const TextSession& session, const StateMemory& memory, const Checksum& owner,
                                std::vector<std::uint64_t>* head);

// Checks all of it first: memory and session are as they were where it fails. kFile when it is no saved text
// or damaged, kInput when it is another program's. `name` is what messages call it.
Status restore_text(const std::uint8_t* data, std::size_t size, const std::string& name,
                    const Checksum& owner, const StateMemory& memory, TextSession* session);

}  // namespace slipway
