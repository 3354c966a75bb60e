#pragma once

#include <string>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"
#include "text/sampler.h"

namespace slipway {

enum class Action { kRun, kDescribe, kRoofline, kCapabilities, kVersion, kHelp };

// A method that runs once before the one that is measured.
struct EarlierRun {
  std::string method;
  std::vector<std::string> inputs;
};

struct Options {
  Action action = Action::kRun;
  std::string model_path;
  std::string data_path;
  std::vector<std::string> inputs;
  std::vector<Shape> input_shapes;
  std::string output_prefix;
  unsigned num_executions = 1;
  unsigned warmup = 0;
  unsigned cpu_threads = 0;  // 0: as many as there are physical cores
  std::string method_name = "forward";
  std::vector<std::string> also_load;
  std::vector<EarlierRun> run_first;
  std::string profile_path;
  std::string values_path;  // the tensors that instructions gave
  bool profile = false;     // the profile by operators, in the result
  bool count_instructions = false;
  unsigned generate = 0;            // tokens to generate; 0: the method runs as it is
  std::string prompt_path;          // the tokens that come before them
  bool own_stops = true;            // whether the tokens that the program names end a text
  std::vector<std::int64_t> stops;  // others
  Sampling sampling;
  bool stream = false;  // each token as it comes
  bool turns = false;   // after each text, the next one is waited for
  EngineOptions engine;
  bool digests = false;  // also where they cost time
};

// Whether --json is among the words, and where to: even a wrong command line is answered in JSON.
struct JsonWish {
  bool wanted = false;
  std::string path;
};
JsonWish find_json(const std::vector<std::string>& words);

// kUsage for an unknown flag, a missing or malformed value, flags that contradict each other.
Result<Options> parse_options(const std::vector<std::string>& words);

// "1x3x224x224,1x8": shapes apart by commas, dimensions by x, "scalar" for a tensor without dimensions.
Result<std::vector<Shape>> parse_shapes(const std::string& text);

std::string help_text();

}  // namespace slipway
