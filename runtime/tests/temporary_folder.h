#pragma once

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// A folder that is removed, with all that is in it, at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* parent = std::getenv("TMPDIR");
    path_ = std::string(parent == nullptr ? "/tmp" : parent) + "/runtime_tests.XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      std::perror(path_.c_str());
      std::abort();
    }
  }
  ~TemporaryFolder() {
    const auto discard = [](const char* path, const struct stat*, int, FTW*) { return std::remove(path); };
    ::nftw(path_.c_str(), discard, 8, FTW_DEPTH | FTW_PHYS);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    DIR* folder = ::opendir(path_.c_str());
    while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
    }
    if (folder != nullptr) {
      ::closedir(folder);
    }
    return names;
  }

  std::string write_text(const std::string& name, const std::string& text) const {
    return write(name, {text.begin(), text.end()});
  }
  std::string write(const std::string& name, const std::vector<std::uint8_t>& bytes) const {
    std::ofstream stream(file(name), std::ios::binary);
    stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return file(name);
  }

  std::string read(const std::string& name) const {
    std::ifstream stream(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
};
