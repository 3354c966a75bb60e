#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace slipway::onnx {
namespace {

// The paths of what is in a folder; nothing when there is no such folder.
std::vector<std::string> files_in(const std::string& path) {
  std::vector<std::string> files;
  DIR* folder = path.empty() ? nullptr : ::opendir(path.c_str());
  if (folder == nullptr) {
    return files;
  }
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      files.push_back(path + "/" + name);
    }
  }
  ::closedir(folder);
  return files;
}

}  // namespace

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

void Scratch::empty() const {
  for (const std::string& file : files_in(path_)) {
    ::unlink(file.c_str());
  }
}

int Scratch::take() {
  int file = -1;
  for (const std::string& name : files_in(path_)) {
    if (file < 0) {
      file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    }
    ::unlink(name.c_str());
  }
  if (!path_.empty()) {
    ::rmdir(path_.c_str());
    path_.clear();
  }
  return file;
}

}  // namespace slipway::onnx
