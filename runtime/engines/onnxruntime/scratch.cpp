#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace slipway::onnx {

Scratch::Scratch() {
  for (const char* base : {static_cast<const char*>(std::getenv("TMPDIR")), "/tmp", "/dev/shm", "."}) {
    if (base == nullptr || *base == '\0') {
      continue;
    }
    std::string path = std::string(base) + "/pte_runner.XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) {
      path_ = path;
      return;
    }
  }
}

Scratch::~Scratch() {
  const int file = take();
  if (file >= 0) {
    ::close(file);
  }
}

int Scratch::take() {
  int file = -1;
  DIR* folder = path_.empty() ? nullptr : ::opendir(path_.c_str());
  if (folder == nullptr) {
    return file;
  }
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      if (file < 0) {
        file = ::open((path_ + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
      }
      ::unlink((path_ + "/" + name).c_str());
    }
  }
  ::closedir(folder);
  ::rmdir(path_.c_str());
  path_.clear();
  return file;
}

}  // namespace slipway::onnx
