// The whole program, from words to exit code.
#pragma once

#include "check.h"
#include "runner/runner.h"
#include "slipway/engine.h"
#include "temporary_folder.h"

struct Outcome {
  int code;
  std::string json;
};

inline Outcome run(const TemporaryFolder& folder, std::vector<std::string> words) {
  words.push_back("--json=" + folder.file("result.json"));
  const int code = slipway::run_command(words);
  return {code, folder.read("result.json")};
}

inline std::vector<float> floats(const slipway::Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return values;
}
