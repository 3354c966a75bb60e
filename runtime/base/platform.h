// What differs between operating systems, behind one header: files, memory, the processor, time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "slipway/status.h"

namespace slipway {

// What tells a file from others and from itself before a change, as the system saw it when it was opened.
// Times are in nanoseconds since 1970.
struct FileIdentity {
  std::uint64_t number = 0;   // of the file in its file system; 0: the system tells nothing
  std::int64_t modified = 0;  // the bytes; anybody who may write can set it
  std::int64_t changed = 0;   // the file in any way; only the system sets it
  std::int64_t seen = 0;      // by the clock
  bool private_to_us = true;  // nobody else but the system's owner may write to it
};

// A whole file, mapped for reading.
class MappedFile {
 public:
  // kFile when it cannot be opened, is no regular file, or cannot be mapped.
  static Result<MappedFile> open(const std::string& path);
  // A part of an open file, up to its end for a size of 0; `name` is what messages call it. The descriptor
  // stays the caller's. kFile when there is no such part, kUsage where the system's files have other handles.
  static Result<MappedFile> open_part(int descriptor, std::uint64_t offset, std::uint64_t size,
                                      const std::string& name);
  // Memory that somebody else owns: it is neither given back nor forgotten.
  static MappedFile borrow(const std::uint8_t* data, std::size_t size) { return {data, size, {}, false}; }

  const std::uint8_t* data() const { return data_.get(); }
  std::size_t size() const { return data_.get_deleter().size; }
  const FileIdentity& identity() const { return identity_; }

  // Gives the memory of a part of the file back to the system; reading it again reads the file again.
  void forget(const std::uint8_t* data, std::size_t size) const;

 private:
  struct Unmap {
    std::size_t size;
    bool ours;
    void operator()(const std::uint8_t* data) const;
  };

  // Whether it is a part that the system mapped for this object.
  bool is_ours(const std::uint8_t* part, std::size_t bytes) const {
    return data_.get_deleter().ours && part >= data() && part <= data() + size() &&
           bytes <= size() - static_cast<std::size_t>(part - data());
  }

  MappedFile(const std::uint8_t* data, std::size_t size, const FileIdentity& identity, bool ours = true)
      : data_(data, {size, ours}), identity_(identity) {}

  std::unique_ptr<const std::uint8_t, Unmap> data_;
  FileIdentity identity_;
};

// Zeroed memory by pages, aligned to them: in large ones where the system has those and the size is worth it.
class Pages {
 public:
  // nullptr data() when there is none.
  static Pages allocate(std::size_t size);

  std::uint8_t* data() const { return data_.get(); }
  std::size_t size() const { return data_.get_deleter().size; }

 private:
  struct Free {
    std::size_t size;
    void operator()(std::uint8_t* data) const;
  };

  Pages(std::uint8_t* data, std::size_t size) : data_(data, {size}) {}

  std::unique_ptr<std::uint8_t, Free> data_;
};

struct FilePart {
  const void* data = nullptr;
  std::size_t size = 0;
};

// A file that says of itself what tells it from copies and later versions.
struct SelfPortrait {
  std::int64_t modified = 0;                        // the time that it gets
  std::function<void(std::uint64_t number)> paint;  // called before anything is written, with its number
};

// Writes a file of these parts, one after the other, under a temporary name beside `path`, syncs it and
// renames it into place, over an existing file: it is whole or not there. A pipe, a terminal and the like
// (/dev/null) get the bytes as they come, a link or a folder is refused; for a file with a portrait all of
// these are, and only its owner may write to it. kOutput on failure, nothing left behind.
Status write_file(const std::string& path, const std::vector<FilePart>& parts,
                  const SelfPortrait& portrait = {});

// Whether there is something under that name.
bool exists(const std::string& path);

// What may be read behind the last byte of a file that is mapped: kernels read whole registers.
inline constexpr std::size_t kReadBehind = 64;

// The file that this code is in: the program's, or a shared library's. Empty when the system does not tell.
std::string own_path();

// Nanoseconds since 1970, by the clock.
std::int64_t wall_clock();

// All of a file whose size nobody knows before, as that of /proc/cpuinfo; empty when it cannot be read.
std::string system_text(const std::string& path);

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

// Threads of a pool at most.
inline constexpr unsigned kMostThreads = 1024;

// Whether the system starts so many threads: pthreadpool does not look, and waits for ever for one that is
// missing. kUsage beyond kMostThreads, kMemory when the system refuses.
Status check_threads(unsigned count);

// What memory there is for this process, before it is asked for.
struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string limit;  // what says so: "this device", "the control group /job", "ulimit -v"
};

// The least of what the system has left (on Linux MemAvailable and free swap), what the control groups of
// this process leave (version 2), and its own limits (RLIMIT_AS, RLIMIT_DATA). Nothing where it tells none.
std::optional<MemoryLeft> memory_left();

// The same below another root than "/", for tests; without this process's own limits.
std::optional<MemoryLeft> memory_left_below(const std::string& root);

// So little memory is simply tried.
inline constexpr std::uint64_t kAlwaysTried = std::uint64_t{16} << 20;
// kMemory when `what` ("method forward") takes more bytes than are left, and more than kAlwaysTried.
Status check_room(std::uint64_t bytes, const std::string& what);

}  // namespace slipway
