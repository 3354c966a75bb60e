// A run that reads a prompt and writes tokens after it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"
#include "text/session.h"

namespace slipway {

struct Generated {
  std::int64_t prompt_tokens = 0;
  double prompt_ms = 0;  // until the first token is chosen
  std::vector<std::int64_t> tokens;
  std::vector<double> token_ms;  // of each token but the first: reading the one before it, and choosing
  const char* ended = "";        // why it wrote no more: "stop", "length" or "context"
  TextModel model;
  std::vector<float> first_scores;  // those of the token that follows the prompt
};

// Who hears of a text while it is written.
struct TextListener {
  std::function<Status(std::int64_t)> token;  // each, as it comes
  // A text has ended, and the next one is waited for; with all that was written so far, and the tokens read.
  std::function<Status(const Generated& found, std::int64_t position)> turn;
};

// Reads the prompt and writes the tokens that `options` wants; the program is loaded with
// text_methods_of(program) besides.
Result<Generated> generate(const Options& options, Engine& engine, const ProgramInfo& program,
                           const MethodInfo& method, const TextListener& listener);

// The tokens written [n], and the scores of the first of them [vocabulary].
std::vector<Tensor> outputs_of(const Generated& generated);

}  // namespace slipway
