#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "problem.h"

namespace proof {

const char* StatusName(xnn_status status);

// A problem given to XNNPACK: created, shaped and set up, to be invoked any number of times.
class Attempt {
 public:
  // With one thread there is no pool, as most programs have it.
  Attempt(const Problem& problem, std::size_t threads);

  // Success, or how far it came.
  xnn_status status() const { return status_; }
  const std::string& stage() const { return stage_; }

  xnn_status Invoke();
  const std::uint8_t* output() const { return output_.data(); }
  // Whether nothing was written behind the output.
  bool EndIsIntact() const;
  // What XNNPACK calls the operators it chose.
  const std::vector<std::string>& operators() const { return operators_; }

 private:
  template <auto* destroy>
  struct Destroy {
    template <typename T>
    void operator()(T* handle) const {
      destroy(handle);
    }
  };

  bool Succeeded(xnn_status status, const char* stage);
  void Create(const Problem& problem, std::size_t threads);
  void ReadOperators();

  xnn_status status_ = xnn_status_success;
  std::string stage_;
  std::vector<std::uint8_t> input_, output_;
  std::size_t output_bytes_;
  std::vector<std::string> operators_;
  std::unique_ptr<pthreadpool, Destroy<pthreadpool_destroy>> pool_;
  std::unique_ptr<xnn_runtime, Destroy<xnn_delete_runtime>> runtime_;
};

}  // namespace proof
