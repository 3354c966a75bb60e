// The value that guards the stack, and what happens when it was overwritten. Compilers for MinGW refer to
// both by these names; zig's own are the same value in every program, which an attacker who overwrites a
// stack can write again.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <cstdint>

#if defined(__clang__) || __GNUC__ >= 11
#define SLIPWAY_UNGUARDED __attribute__((no_stack_protector))
#else
#define SLIPWAY_UNGUARDED __attribute__((optimize("no-stack-protector")))
#endif

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier): the compiler's name
std::uintptr_t __stack_chk_guard = 0x00000aff;

// NOLINTNEXTLINE(bugprone-reserved-identifier): the compiler's name
[[noreturn]] SLIPWAY_UNGUARDED void __stack_chk_fail() {
  // Nothing that is on this stack can be trusted: no handler of ours runs.
  static const char text[] = "*** stack smashing detected ***\n";
  DWORD written = 0;
  ::WriteFile(::GetStdHandle(STD_ERROR_HANDLE), text, sizeof(text) - 1, &written, nullptr);
  ::TerminateProcess(::GetCurrentProcess(), 0xC0000409);  // STATUS_STACK_BUFFER_OVERRUN
  for (;;) {
    ::Sleep(INFINITE);  // until it has ended
  }
}

}  // extern "C"

namespace {

// Made before any other constructor, for what runs now must not return through a function that it guards.
__attribute__((constructor(101))) SLIPWAY_UNGUARDED void make_guard() {
  using Random = BOOLEAN(WINAPI*)(PVOID, ULONG);
  std::uintptr_t value = 0;
  // RtlGenRandom under its exported name: advapi32 has it on every Windows, and needs no further library.
  HMODULE library = ::LoadLibraryW(L"advapi32.dll");
  FARPROC found = library != nullptr ? ::GetProcAddress(library, "SystemFunction036") : nullptr;
  if (found != nullptr) {
    reinterpret_cast<Random>(reinterpret_cast<void*>(found))(&value, sizeof(value));
  }
  LARGE_INTEGER ticks;
  ::QueryPerformanceCounter(&ticks);
  value ^= static_cast<std::uintptr_t>(ticks.QuadPart) ^ reinterpret_cast<std::uintptr_t>(&ticks);
  // A zero byte ends what strings could write.
  __stack_chk_guard = value & ~static_cast<std::uintptr_t>(0xFF);
}

}  // namespace
