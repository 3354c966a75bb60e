#include "quiet_errors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace slipway::onnx {
namespace {

bool is_expected(const std::string& line) {
  return line.rfind("Schema error: ", 0) == 0 && line.find("already registered") != std::string::npos;
}

std::string contents(int file) {
  std::string text;
  char block[4096];
  ::lseek(file, 0, SEEK_SET);
  for (ssize_t got = 0; (got = ::read(file, block, sizeof(block))) > 0;) {
    text.append(block, static_cast<std::size_t>(got));
  }
  return text;
}

// Without the lines that are expected and the empty one behind each of them.
std::string unexpected(const std::string& text) {
  std::string rest;
  bool dropped = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end == std::string::npos ? end : end - begin + 1);
    begin += line.size();
    if (is_expected(line)) {
      dropped = true;
    } else if (line != "\n" || !dropped) {
      rest += line;
      dropped = false;
    }
  }
  return rest;
}

}  // namespace

QuietErrors::QuietErrors() : kept_(::memfd_create("errors", MFD_CLOEXEC)) {
  standard_error_ = kept_ < 0 ? -1 : ::dup(STDERR_FILENO);
  if (standard_error_ >= 0) {
    std::fflush(stderr);
    ::dup2(kept_, STDERR_FILENO);
  }
}

QuietErrors::~QuietErrors() {
  if (standard_error_ >= 0) {
    std::fflush(stderr);
    ::dup2(standard_error_, STDERR_FILENO);
    ::close(standard_error_);
    const std::string rest = unexpected(contents(kept_));
    std::fwrite(rest.data(), 1, rest.size(), stderr);
  }
  if (kept_ >= 0) {
    ::close(kept_);
  }
}

}  // namespace slipway::onnx
