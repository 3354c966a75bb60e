#include "watch.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>

namespace slipway::fuzz {
namespace {

constexpr std::size_t kMostWords = 12000;

double cpu_seconds_of(pid_t process) {
  clockid_t clock = 0;
  timespec now{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &now) != 0) {
    return 0;
  }
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double wall_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

bool watch(pid_t process, const std::atomic<std::size_t>* at, std::size_t limit, int* ended) {
  constexpr double kWallFactor = 30;  // a machine may be busy with other things
  constexpr useconds_t kPause = 500;
  std::size_t reached = SIZE_MAX;
  double cpu = 0;
  double wall = 0;
  while (::waitpid(process, ended, WNOHANG) == 0) {
    const std::size_t now = at == nullptr ? 0 : at->load();
    if (now != reached) {
      reached = now;
      cpu = cpu_seconds_of(process);
      wall = wall_seconds();
    } else if (cpu_seconds_of(process) - cpu > static_cast<double>(limit) ||
               wall_seconds() - wall > kWallFactor * static_cast<double>(limit)) {
      ::kill(process, SIGKILL);
      ::waitpid(process, ended, 0);
      return true;
    }
    ::usleep(kPause);
  }
  return false;
}

std::string words_of(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string text(size < 0 ? 0 : std::min<std::size_t>(static_cast<std::size_t>(size), kMostWords), '\0');
  const ssize_t read = ::pread(file, text.data(), text.size(), 0);
  text.resize(read < 0 ? 0 : static_cast<std::size_t>(read));
  return text;
}

}  // namespace slipway::fuzz
