#pragma once

#include <string>

namespace slipway::onnx {

// A folder of our own for files that ONNX Runtime insists on writing; gone, with all that is in it, at the
// end.
class Scratch {
 public:
  // In TMPDIR, /tmp, /dev/shm or the current folder: the first that can be written to.
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Empty when no folder can be written to.
  const std::string& path() const { return path_; }
  // Removes the files that are in it so far.
  void empty() const;
  // Opens the first file in the folder for reading, then removes all files and the folder: what ONNX Runtime
  // has open it goes on writing to. A negative number when there is none.
  int take();

 private:
  std::string path_;
};

}  // namespace slipway::onnx
