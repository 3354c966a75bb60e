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

  // Gives the memory of a part of the file back to the system; reading it again reads the file again.
  void forget(const std::uint8_t* data, std::size_t size) const;

 private:
  MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Zeroed memory by pages, aligned to them: in large ones where the system has those and the size is worth it.
class Pages {
 public:
  // nullptr data() when there is none.
  static Pages allocate(std::size_t size);

  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Pages(std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes a file under a temporary name beside `path`, syncs it and renames it into place: under its final
// name the file is whole or not there. Replaces an existing file. kOutput on failure, nothing left behind,
// also when SIGINT, SIGTERM or SIGHUP ends the process meanwhile.
Status write_file(const std::string& path, const void* data, std::size_t size);

// All of a file of the system's own, as /proc/cpuinfo, whose size nobody knows before; empty when it cannot
// be read.
std::string system_text(const std::string& path);

// Makes writing beyond the limit on file sizes an error of write_file's instead of a signal that ends the
// process.
void ignore_file_size_signal();

// The largest resident set of this process so far, in bytes; 0 when the system does not tell.
std::uint64_t peak_rss_bytes();

// The program's arguments after its own name, in UTF-8. To be called once, first of all: where text and bytes
// are different things to a system, its standard streams take bytes from here on.
std::vector<std::string> command_words(int argc, char** argv);

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
