#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <dlfcn.h>
#include <sys/auxv.h>
#endif

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/platform.h"

namespace slipway {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;  // x86's, and Arm's with pages of 4 KiB

std::size_t page_size() {
  static const long size = ::sysconf(_SC_PAGESIZE);
  return size > 0 ? static_cast<std::size_t>(size) : 4096;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }

  int get() const { return number_; }
  // Closes now, so that a late write error is seen.
  int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

Status cannot_write(const std::string& path, int error) {
  std::string fix = "name a folder that exists and may be written to";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    fix = "free some space there, or write to another place";
  }
  return {Code::kOutput, "Cannot write " + path + ": " + std::strerror(error) + ".", fix, {path}};
}

int write_all(int descriptor, const void* data, std::size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, next, size);
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno;
    }
    next += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

// What a rename onto that name must not replace; nullptr for an ordinary file, or none.
const char* not_a_file(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) {
    return nullptr;
  }
  return S_ISLNK(status.st_mode)   ? "it is a link"
         : S_ISDIR(status.st_mode) ? "it is a folder"
                                   : "it is no file";
}

// A descriptor of what takes bytes as they come: /dev/null, a pipe, a terminal; -1 for anything else.
int open_stream(const std::string& path) {
  struct stat status = {};
  const bool takes =
      ::stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
  return takes ? ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY) : -1;
}

// A rename survives a power cut only when its folder is synced too. Some file systems cannot; then it is not.
void sync_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : (slash == 0 ? "/" : path.substr(0, slash));
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) {
    static_cast<void>(::fsync(descriptor.get()));
  }
}

// Makes a file that was not there before. -1 and errno on failure.
int create_temporary(const std::string& path, mode_t mode, std::string* temporary) {
  constexpr int kAttempts = 100;  // names that a killed process of the same number may have left
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *temporary = path + "." + std::to_string(::getpid()) + "." + std::to_string(attempt) + ".tmp";
    const int number = ::open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (number >= 0 || errno != EEXIST) {
      return number;
    }
  }
  return -1;
}

#ifdef __APPLE__
#define SLIPWAY_TIME_OF(status, name) (status).st_##name##timespec
#else
#define SLIPWAY_TIME_OF(status, name) (status).st_##name##tim
#endif

std::int64_t nanoseconds(const struct timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

FileIdentity identity_of(const struct stat& status) {
  FileIdentity identity;
  identity.number = static_cast<std::uint64_t>(status.st_ino);
  identity.modified = nanoseconds(SLIPWAY_TIME_OF(status, m));
  identity.changed = nanoseconds(SLIPWAY_TIME_OF(status, c));
  identity.seen = wall_clock();
  identity.private_to_us =
      (status.st_uid == ::geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return identity;
}
#undef SLIPWAY_TIME_OF

// What a file system cannot keep, it is not asked for twice.
void set_modified(int descriptor, const SelfPortrait& portrait) {
  if (portrait.modified != 0) {
    struct timespec times[2] = {};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = static_cast<time_t>(portrait.modified / 1000000000);
    times[1].tv_nsec = static_cast<long>(portrait.modified % 1000000000);
    static_cast<void>(::futimens(descriptor, times));
  }
}

constexpr std::size_t kReserve = std::size_t{1} << 20;  // more than what is mapped behind a file

// Address space that a file of that size takes, with the bytes behind its last one that kernels may read.
std::size_t mapped_size(std::size_t size) {
  return (size + kReadBehind + page_size() - 1) / page_size() * page_size();
}

// Where in its page of memory a byte is.
std::size_t in_page(const void* data) {
  return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(data) % page_size());
}

Status cannot_map(const std::string& name, const std::string& what, const std::string& fix) {
  return {Code::kFile, "Cannot read " + name + ": " + what + ".", fix, {name}};
}

// Maps so many bytes of a file from `offset` on; nullptr for 0 bytes.
Result<const std::uint8_t*> map_part(int descriptor, std::uint64_t offset, std::uint64_t size,
                                     const std::string& name) {
  if (size == 0) {
    return nullptr;
  }
  if (size > SIZE_MAX - kReserve) {
    return cannot_map(name, "it is larger than this machine's address space", "use a 64-bit target");
  }
  const auto before = static_cast<std::size_t>(offset % page_size());
  const std::size_t bytes = before + static_cast<std::size_t>(size);
  const std::size_t mapped = mapped_size(bytes);
  void* data = ::mmap(nullptr, mapped, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int error = data == MAP_FAILED ? errno : 0;
  if (error == 0 && ::mmap(data, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor,
                           static_cast<off_t>(offset - before)) == MAP_FAILED) {
    error = errno;
    ::munmap(data, mapped);
  }
  if (error == ENOMEM) {
    return Status(Code::kMemory, "No address space to map " + name + ".",
                  "raise the memory limit (ulimit -v)");
  }
  if (error != 0) {
    return cannot_map(name, std::strerror(error), "copy the file to a local disk");
  }
  return static_cast<const std::uint8_t*>(data) + before;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](const std::string& what, const std::string& fix) {
    return cannot_map(path, what, fix);
  };
  // A pipe that nobody writes to is refused, not waited for.
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) {
    const int error = errno;
    return fail(std::strerror(error), error == ENOENT ? "check the path" : "check the file's permissions");
  }
  struct stat status = {};
  if (::fstat(descriptor.get(), &status) != 0) {
    return fail(std::strerror(errno), "check the file");
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file",
                "name the file itself");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  SLIPWAY_TRY(const std::uint8_t* data, map_part(descriptor.get(), 0, size, path));
  return MappedFile(data, static_cast<std::size_t>(size), identity_of(status));
}

Result<MappedFile> MappedFile::open_part(int descriptor, std::uint64_t offset, std::uint64_t size,
                                         const std::string& name) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return cannot_map(name, "the descriptor is not a regular file's", "open the file itself");
  }
  const auto whole = static_cast<std::uint64_t>(status.st_size);
  if (offset > whole || size > whole - offset) {
    return cannot_map(name, "the file has only " + std::to_string(whole) + " bytes",
                      "compare offset and size with the file's size");
  }
  const std::uint64_t wanted = size == 0 ? whole - offset : size;
  SLIPWAY_TRY(const std::uint8_t* data, map_part(descriptor, offset, wanted, name));
  return MappedFile(data, static_cast<std::size_t>(wanted), identity_of(status));
}

void MappedFile::Unmap::operator()(const std::uint8_t* data) const {
  if (ours) {
    const std::size_t before = in_page(data);
    ::munmap(const_cast<std::uint8_t*>(data) - before, mapped_size(before + size));
  }
}

void MappedFile::forget(const std::uint8_t* data, std::size_t size) const {
  if (!is_ours(data, size)) {
    return;
  }
  // Whole pages, also those it shares with its neighbours: nobody writes to them.
  const std::size_t before = in_page(data);
  ::madvise(const_cast<std::uint8_t*>(data) - before, before + size, MADV_DONTNEED);
}

Pages Pages::allocate(std::size_t size) {
  if (size == 0 || size > SIZE_MAX - 2 * kLargePage) {
    return {nullptr, 0};
  }
  const bool large = size >= kLargePage;
  // With room to begin at a large page's boundary; what is not touched takes no memory.
  const std::size_t mapped = large ? size + kLargePage : size;
  void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return {nullptr, 0};
  }
  auto* data = static_cast<std::uint8_t*>(memory);
  if (large) {
    const std::size_t before =
        (kLargePage - reinterpret_cast<std::uintptr_t>(data) % kLargePage) % kLargePage;
    if (before != 0) {
      ::munmap(data, before);
    }
    data += before;
    const std::size_t kept = (size + page_size() - 1) / page_size() * page_size();
    if (kept < mapped - before) {
      ::munmap(data + kept, mapped - before - kept);
    }
#ifdef MADV_HUGEPAGE
    // The last, incomplete one stays in small pages.
    ::madvise(data, size - size % kLargePage, MADV_HUGEPAGE);
#endif
  }
  return {data, size};
}

void Pages::Free::operator()(std::uint8_t* data) const {
  ::munmap(data, size);
}

Status write_file(const std::string& path, const std::vector<FilePart>& parts, const SelfPortrait& portrait) {
  const bool of_itself = static_cast<bool>(portrait.paint);
  const char* other = not_a_file(path);
  std::string temporary;
  FileDescriptor descriptor(other == nullptr ? create_temporary(path, of_itself ? 0644 : 0666, &temporary)
                            : of_itself      ? -1
                                             : open_stream(path));
  if (descriptor.get() < 0) {
    return other == nullptr ? cannot_write(path, errno)
                            : Status(Code::kOutput, "Cannot write " + path + ": " + other + ".",
                                     "name a file, or a new name", {path});
  }
  struct stat status = {};
  if (of_itself) {
    // Before the file's first byte.
    portrait.paint(::fstat(descriptor.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0);
  }
  int error = 0;
  for (std::size_t i = 0; error == 0 && i < parts.size(); ++i) {
    error = write_all(descriptor.get(), parts[i].data, parts[i].size);
  }
  if (other != nullptr) {
    return error == 0 ? Status() : cannot_write(path, error);
  }
  set_modified(descriptor.get(), portrait);
  if (error == 0 && ::fsync(descriptor.get()) != 0 && errno != EINVAL && errno != EROFS) {
    error = errno;
  }
  if (descriptor.close() != 0 && error == 0) {
    error = errno;
  }
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    return cannot_write(path, error);
  }
  sync_folder(path);
  return {};
}

bool exists(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string own_path() {
#ifdef __APPLE__
  char path[4096];
  std::uint32_t size = sizeof(path);
  return ::_NSGetExecutablePath(path, &size) == 0 ? path : "";
#else
  // A static program has no loader that could tell, and no library either.
  Dl_info own = {};
  Dl_info started = {};
  const bool apart = ::dladdr(reinterpret_cast<const void*>(&own_path), &own) != 0 &&
                     ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_PHDR)), &started) != 0 &&
                     own.dli_fbase != started.dli_fbase;
  return apart && own.dli_fname != nullptr ? own.dli_fname : "/proc/self/exe";
#endif
}

std::vector<std::string> command_words(int argc, char** argv) {
  return std::vector<std::string>(argv + 1, argv + argc);
}

std::string system_text(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t size = file.get() < 0 ? 0 : ::read(file.get(), part, sizeof(part));
    if (size > 0) {
      text.append(part, static_cast<std::size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      return text;
    }
  }
}

std::uint64_t peak_rss_bytes() {
#ifdef __linux__
  // VmHWM belongs to this program alone; ru_maxrss starts at the size of the process that called exec.
  const std::string status = system_text("/proc/self/status");
  const std::string_view key = "VmHWM:";
  const std::size_t place = status.find(key);
  if (place != std::string::npos) {
    return std::strtoull(status.c_str() + place + key.size(), nullptr, 10) * 1024;
  }
#endif
  struct rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) {
    return 0;
  }
#ifdef __APPLE__
  return static_cast<std::uint64_t>(usage.ru_maxrss);
#else
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace slipway
