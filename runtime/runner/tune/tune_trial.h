// One load of a program with some kernels, and what its executions take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

using Wishes = std::map<std::string, std::string>;  // by layer, the candidate that computes it

struct Trial {
  std::uint64_t whole = 0;                      // nanoseconds of an execution
  std::map<std::string, std::uint64_t> layers;  // the same of each layer
  bool agrees = true;                           // with the outputs of the first trial
};

class Trials {
 public:
  // All must outlive it.
  Trials(const Options& options, Engine& engine, const std::vector<Tensor>& inputs)
      : options_(options), engine_(engine), inputs_(inputs) {}

  // So many executions that they take a little while together, when one takes so many nanoseconds.
  void set_executions(std::uint64_t nanoseconds);
  // `layers`: their times are wanted, and the recording's cost is no matter.
  Result<Trial> load(const Wishes& wishes, bool layers);

 private:
  const Options& options_;
  Engine& engine_;
  const std::vector<Tensor>& inputs_;
  unsigned executions_ = 3;
  std::vector<Tensor> expected_;
};

}  // namespace slipway
