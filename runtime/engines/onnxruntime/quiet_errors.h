#pragma once

namespace slipway::onnx {

// Debian's libonnxruntime and libonnx each hold ONNX's schemas, and when ONNX Runtime starts, the second to
// register them says so on standard error, hundreds of lines. While one of these lives, standard error is
// kept back; at its end those lines are dropped and whatever else was written is given back. One at a time,
// before there are threads.
class QuietErrors {
 public:
  QuietErrors();
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  int kept_ = -1;
  int standard_error_ = -1;
};

}  // namespace slipway::onnx
