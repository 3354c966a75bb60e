// What differs between operating systems, behind one header: files, memory, the processor, time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "slipway/status.h"

namespace slipway {

// A whole file, mapped for reading.
class MappedFile {
 public:
  // kFile when it cannot be opened, is no regular file, or cannot be mapped.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes a file under a temporary name beside `path`, syncs it and renames it into place: under its final
// name the file is whole or not there. Replaces an existing file. kOutput on failure, nothing left behind,
// also when SIGINT, SIGTERM or SIGHUP ends the process meanwhile.
Status write_file(const std::string& path, const void* data, std::size_t size);

// Makes writing beyond the limit on file sizes an error of write_file's instead of a signal that ends the
// process.
void ignore_file_size_signal();

// The largest resident set of this process so far, in bytes; 0 when the system does not tell.
std::uint64_t peak_rss_bytes();

struct CpuInfo {
  std::string arch;                   // as uname -m
  std::string model;                  // empty when the system does not tell
  std::vector<std::string> features;  // as /proc/cpuinfo names them
  unsigned cores = 1;                 // physical cores of the machine
};

CpuInfo cpu_info();

// Physical cores, but no more than this process may run on.
unsigned usable_cores();

}  // namespace slipway
