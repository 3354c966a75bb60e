#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <set>

#include "base/checksum.h"
#include "base/platform.h"
#include "check.h"
#include "runner/crash_guard.h"
#include "runner/files/digests.h"
#include "runner/report/report.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;

TEST(write_file_replaces_and_leaves_nothing_else) {
  const TemporaryFolder folder;
  folder.write("a", {'o', 'l', 'd'});
  CHECK(write_file(folder.file("a"), {{"new", 3}}).ok());
  CHECK_EQUAL(folder.read("a"), "new");
  CHECK_EQUAL(folder.files().size(), std::size_t{1});
  struct stat status = {};
  CHECK(::stat(folder.file("a").c_str(), &status) == 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  CHECK_EQUAL(status.st_mode & 0777, 0666 & ~mask);
}

// What is there and is no file is not renamed over: bytes go through it, or nothing is written.
TEST(write_file_onto_what_is_no_file) {
  const TemporaryFolder folder;
  folder.write("a", {'o', 'l', 'd'});
  const SelfPortrait portrait = {0, [](std::uint64_t /*number*/) {}};
  const auto fails = [&](const std::string& name, const char* what) {
    const Status status = write_file(folder.file(name), {{"x", 1}});
    CHECK(status.code() == Code::kOutput);
    CHECK_CONTAINS(status.message(), what);
    CHECK(write_file(folder.file(name), {{"x", 1}}, portrait).code() == Code::kOutput);
  };
  for (const char* target : {"a", "none"}) {
    CHECK(::symlink(folder.file(target).c_str(), folder.file("link").c_str()) == 0);
    fails("link", "it is a link");
    ::unlink(folder.file("link").c_str());
  }
  CHECK_EQUAL(folder.read("a"), "old");
  CHECK(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  const int reader = ::open(folder.file("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  CHECK(write_file(folder.file("pipe"), {{"new", 3}}).ok());
  CHECK_CONTAINS(write_file(folder.file("pipe"), {{"x", 1}}, portrait).message(), "it is no file");
  char said[8] = {};
  CHECK_EQUAL(::read(reader, said, sizeof(said)), ssize_t{3});
  CHECK_EQUAL(std::string(said), "new");
  ::close(reader);
  CHECK_EQUAL(folder.files().size(), std::size_t{2});
  CHECK(::symlink("/dev/null", folder.file("link").c_str()) == 0);
  CHECK(write_file(folder.file("link"), {{"x", 1}}).ok());
  CHECK_EQUAL(folder.files().size(), std::size_t{3});
}

TEST(mapped_file_reads_and_refuses) {
  const TemporaryFolder folder;
  folder.write("a", {1, 2, 3});
  folder.write("empty", {});
  const Result<MappedFile> file = MappedFile::open(folder.file("a"));
  CHECK(file.ok() && file.value().size() == 3 && file.value().data()[2] == 3);
  CHECK(MappedFile::open(folder.file("empty")).ok());
  const Result<MappedFile> none = MappedFile::open(folder.file("none"));
  CHECK(!none.ok() && none.status().code() == Code::kFile);
  const Result<MappedFile> self = MappedFile::open("/tmp");
  CHECK(!self.ok());
  if (!self.ok()) {
    CHECK_CONTAINS(self.status().message(), "folder");
  }
}

#ifndef SLIPWAY_SANITIZE
// The exit code of a process of its own, which does some work.
template <typename Work>
int code_of_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}

int code_of_crash(int number, const std::string& json) {
  return code_of_child([&] {
    ::close(STDERR_FILENO);
    const CrashGuard guard("loaded a.pte", {true, json});
    ::raise(number);
  });
}

TEST(crash_guard_answers_each_signal_with_its_own_words) {
  const std::pair<int, Ending> all[] = {
      {SIGSEGV, Ending::kSegment},   {SIGBUS, Ending::kBus},    {SIGILL, Ending::kInstruction},
      {SIGFPE, Ending::kArithmetic}, {SIGABRT, Ending::kAbort},
  };
  for (const auto& [number, ending] : all) {
    const TemporaryFolder folder;
    const std::string json = folder.file("out.json");
    CHECK_EQUAL(code_of_crash(number, json), static_cast<int>(Code::kCrash));
    CHECK_EQUAL(folder.read("out.json"), error_json(status_of(ending, "loaded a.pte")) + "\n");
    CHECK_EQUAL(folder.files().size(), std::size_t{1});
  }
}

TEST(crash_guard_writes_through_no_link) {
  const TemporaryFolder folder;
  folder.write_text("a", "kept");
  CHECK(::symlink(folder.file("a").c_str(), folder.file("link").c_str()) == 0);
  CHECK_EQUAL(code_of_crash(SIGSEGV, folder.file("link")), static_cast<int>(Code::kCrash));
  CHECK_EQUAL(folder.read("a"), "kept");
}

// pthreadpool waits for ever for a thread that the system did not start.
TEST(threads_that_cannot_start_are_refused) {
  CHECK(check_threads(1).ok());
  CHECK(check_threads(64).ok());
  CHECK(check_threads(kMostThreads + 1).code() == Code::kUsage);
  const int code = code_of_child([] {
    const struct rlimit limit = {std::uint64_t{1} << 28, std::uint64_t{1} << 28};  // 64 stacks need more
    struct rlimit now = {};
    if (::setrlimit(RLIMIT_AS, &limit) != 0 || ::getrlimit(RLIMIT_AS, &now) != 0 ||
        now.rlim_cur != limit.rlim_cur) {
      ::_exit(0);  // QEMU's user mode ignores it: its own memory would be limited
    }
    const Status status = check_threads(64);
    const bool said = status.message().find("does not start 64 threads") != std::string::npos;
    ::_exit(status.code() == Code::kMemory && said && check_threads(2).ok() ? 0 : 1);
  });
  CHECK_EQUAL(code, 0);
}
#endif

// Several pieces, and a rest.
constexpr std::size_t kLarge = 300001;

std::string content(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) {
    text[i] = static_cast<char>(i * i >> 7);
  }
  return text;
}

TEST(a_digest_of_pieces_is_that_of_the_whole) {
  const std::string text = content(1000);
  for (const unsigned piece : {1U, 7U, 63U, 64U, 65U, 100U, 999U}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::string part = text.substr(at, piece);
      hash.add(part.data(), part.size());
    }
    CHECK_EQUAL(hash.hex(), sha256_hex(text.data(), text.size()));
  }
}

TEST(files_that_ran_are_digested_where_it_is_cheap) {
  const TemporaryFolder folder;
  const std::string text = content(kLarge);
  const std::string large = folder.write_text("large", text), small = folder.write_text("small", "abc");
  const std::vector<FileDigest> all = digest_files({large, small}, INFINITY);
  CHECK_EQUAL(all.size(), std::size_t{2});
  CHECK_EQUAL(all[0].sha256, sha256_hex(text.data(), text.size()));
  CHECK_EQUAL(all[0].size, std::uint64_t{kLarge});
  CHECK_EQUAL(all[1].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(digest_files({small, large}, 1e-9).empty());
  CHECK(digest_files({large, folder.file("absent")}, INFINITY).empty());
}

std::pair<std::uint64_t, std::uint64_t> sum_of_bytes(const std::vector<std::uint8_t>& bytes) {
  const Checksum sum = checksum_of(bytes.data(), bytes.size());
  return {sum.first, sum.second};
}

TEST(checksum_changes_with_every_bit_and_every_length) {
  std::vector<std::uint8_t> bytes;
  for (unsigned i = 0; i < 101; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * 37));
  }
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen = {sum_of_bytes(bytes)};
  std::size_t count = 1;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit, ++count) {
    std::vector<std::uint8_t> other = bytes;
    other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ (1U << bit % 8));
    seen.insert(sum_of_bytes(other));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length, ++count) {
    seen.insert(sum_of_bytes({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  // Zeros are counted, and so is the order of words.
  for (std::size_t length = 2; length < 80; ++length, ++count) {
    seen.insert(sum_of_bytes(std::vector<std::uint8_t>(length)));
  }
  CHECK_EQUAL(seen.size(), count);
  CHECK(sum_of_bytes({1, 0, 0, 0, 0, 0, 0, 0, 2}) != sum_of_bytes({2, 0, 0, 0, 0, 0, 0, 0, 1}));
}

}  // namespace
