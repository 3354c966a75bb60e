#include "runner/files/digests.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/platform.h"
#include "runner/files/sha256.h"
#include "runner/measure.h"

namespace slipway {
namespace {

// Bytes between two looks at the clock: a slow processor of today takes 0.3 ms for them.
constexpr std::size_t kPiece = std::size_t{16} * 1024;

}  // namespace

std::vector<std::string> beside(const std::string& path, const std::vector<std::string>& names) {
  const std::string folder = path.substr(0, path.find_last_of("/\\") + 1);
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const std::string& name : names) {
    paths.push_back(folder + name);
  }
  return paths;
}

Digests digest_files(const std::vector<std::string>& paths, double limit_ms) {
  Digests found;
  found.limit_ms = limit_ms;
  const auto start = std::chrono::steady_clock::now();
  std::vector<MappedFile> files;
  double all = 0;
  for (const std::string& path : paths) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok()) {
      return found;
    }
    all += static_cast<double>(file.value().size());
    files.push_back(std::move(file.value()));
  }
  double done = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const MappedFile& file = files[i];
    Sha256 hash;
    for (std::size_t at = 0; at < file.size(); at += kPiece) {
      const std::size_t size = std::min(kPiece, file.size() - at);
      hash.add(file.data() + at, size);
      done += static_cast<double>(size);
      found.ms = milliseconds_since(start);
      found.estimate_ms = found.ms * all / done;
      if (done < all && found.estimate_ms > limit_ms) {
        found.files.clear();
        return found;
      }
    }
    found.files.push_back({paths[i], file.size(), hash.hex()});
  }
  found.ms = milliseconds_since(start);
  return found;
}

}  // namespace slipway
