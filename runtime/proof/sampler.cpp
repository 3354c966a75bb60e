#include "run.h"

#if defined(_WIN32)

namespace proof {

bool Sampler::Available() {
  return false;
}
Sampler::Sampler() = default;
Sampler::~Sampler() = default;
std::map<std::uintptr_t, unsigned> Sampler::Stop() {
  return {};
}

}  // namespace proof

#else

#include <signal.h>
#include <sys/time.h>
#include <sys/ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

namespace proof {
namespace {

// Filled by the signal handler, which may do nothing but store.
std::array<std::atomic<std::uintptr_t>, 1 << 14> seen;
std::atomic<std::size_t> count{0};

std::uintptr_t ProgramCounter(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__APPLE__) && defined(__aarch64__)
  return static_cast<std::uintptr_t>(machine->__ss.__pc);
#elif defined(__APPLE__)
  return static_cast<std::uintptr_t>(machine->__ss.__rip);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(machine.pc);
#elif defined(__arm__)
  return static_cast<std::uintptr_t>(machine.arm_pc);
#elif defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__i386__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_EIP]);
#endif
}

void Note(int, siginfo_t*, void* context) {
  const std::size_t index = count.fetch_add(1, std::memory_order_relaxed);
  if (index < seen.size()) seen[index].store(ProgramCounter(context), std::memory_order_relaxed);
}

void SetTimer(suseconds_t microseconds) {
  itimerval interval{};
  interval.it_interval.tv_usec = microseconds;
  interval.it_value.tv_usec = microseconds;
  setitimer(ITIMER_PROF, &interval, nullptr);
}

// How much higher the program lies in memory than its file says.
std::uintptr_t LoadBase() {
#if defined(__APPLE__)
  return static_cast<std::uintptr_t>(_dyld_get_image_vmaddr_slide(0));
#else
  std::uintptr_t base = 0;
  // The program itself comes first.
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = static_cast<std::uintptr_t>(info->dlpi_addr);
        return 1;
      },
      &base);
  return base;
#endif
}

}  // namespace

bool Sampler::Available() {
  return true;
}

Sampler::Sampler() {
  count = 0;
  struct sigaction action{};
  action.sa_sigaction = Note;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  SetTimer(1000);
}

Sampler::~Sampler() {
  SetTimer(0);
}

std::map<std::uintptr_t, unsigned> Sampler::Stop() {
  SetTimer(0);
  const std::uintptr_t base = LoadBase();
  const std::size_t total = count.load() < seen.size() ? count.load() : seen.size();
  std::map<std::uintptr_t, unsigned> samples;
  for (std::size_t i = 0; i < total; ++i) ++samples[seen[i].load() - base];
  return samples;
}

}  // namespace proof

#endif
