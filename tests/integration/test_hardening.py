"""Hardening: what compilers give, left out, and seen; what it does to a program that goes too far."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import lief
import pytest

from core.paths import ROOT
from tests.support.builds import least
from toolchains.compilers import families, zig
from toolchains.inspect import checks as hardened
from toolchains.inspect import needs as inspect
from toolchains.targets import Target, get_target

pytestmark = pytest.mark.build

CODE = """
#include <stdio.h>
#include <string.h>
int main(int count, char** words) {
  char copy[8];
  strcpy(copy, words[count - 1]);
  printf("%s\\n", copy);
  memcpy(copy, words[0], (size_t)count);
  return copy[0] == 0;
}
"""
SMASH = """
#include <stdio.h>
extern "C" __attribute__((noinline)) void smash(volatile char* to, int count) {
  for (int at = 0; at < count; ++at) to[at] = 'x';
}
int main(int count, char** words) {
  char small[8];
  smash(small, count > 1 ? 16 : 8);
  puts("survived");
  return words[0] == nullptr;
}
"""
BEYOND = """
#include <cstdio>
#include <vector>
int main(int count, char** words) {
  std::vector<int> some(static_cast<std::size_t>(4), count);
  std::printf("%d\\n", some[static_cast<std::size_t>(count > 1 ? 4 : 3)]);
  return words[0] == nullptr;
}
"""
GUARD = """
#include <cstdint>
#include <cstdio>
extern "C" std::uintptr_t __stack_chk_guard;
int main() {
  std::printf("%llx\\n", static_cast<unsigned long long>(__stack_chk_guard));
}
"""
OFF = {
    "pie": (["-fno-pie"], ["-no-pie"]),
    "relro": ([], ["-Wl,-z,norelro"]),
    "bind_now": ([], ["-Wl,-z,lazy"]),
    "stack_protector": (["-fno-stack-protector"], []),
    "fortify": (["-U_FORTIFY_SOURCE"], []),
}
"""What takes a property away again: words for the compiler, and for the linker."""


def made(
    target: Target, folder: Path, code: str, off: str = "", extra: Sequence[str] = (), language: str = "c"
) -> Path:
    """A program of ``code``, compiled and linked as the profile says, without the property ``off``."""
    compilers, flags = zig.ensure(target), families.hardening(target)
    source, built = folder / f"source.{language}", folder / f"program{'.exe' if target.os == 'windows' else ''}"
    source.write_text(code, encoding="utf-8")
    compiler = compilers.cc if language == "c" else compilers.cxx
    taken, unlinked = OFF.get(off, ([], []))
    compiled = [*flags.compile, *flags.optimized, *taken, "-O2", "-c"]
    subprocess.run([compiler, *compiled, source, "-o", folder / "source.o"], check=True)
    linked = [*flags.link, *flags.program, *unlinked, "-Wl,-S"]
    subprocess.run([compiler, *linked, folder / "source.o", *extra, "-o", built], check=True)
    return built


def promised(target: Target) -> tuple[str, ...]:
    """What a C program can show: the checks of the C++ library have a test of their own."""
    program = inspect.Binary(Path("x"), "", "none", "", "", (), (), {}, kind="program")
    return tuple(name for name in hardened.promised(target, program) if name != "assertions")


@pytest.mark.parametrize("name", ["linux-x86_64", "linux-armv7", "linux-armv6", "android-arm64", "macos-arm64"])
def test_flags_give_what_is_promised(tmp_path: Path, name: str) -> None:
    target = get_target(name)
    found = inspect.read(made(target, tmp_path, CODE))
    assert [missing for missing in promised(target) if missing not in found.hardening] == []


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("name", ["linux-x86_64", "linux-armv6"])
def test_a_program_without_it_is_seen(tmp_path: Path, name: str, off: str) -> None:
    target = get_target(name)
    if off == "bind_now" and target.libc == "static":
        off = "pie"  # a static program looks nothing up: without PIE it has no such flag
    expected = {off} & set(promised(target))
    found = inspect.read(made(target, tmp_path, CODE, off))
    lost = set(promised(target)) - set(found.hardening)
    assert expected <= lost
    assert set(hardened.lacking(target, found)) - {"assertions"} == lost


def test_memory_that_is_written_and_executed_is_seen(tmp_path: Path) -> None:
    """zig's linker makes none of it, so the headers of a good program are changed."""
    target = get_target("linux-x86_64")
    good = made(target, tmp_path, CODE)
    for kind in ("GNU_STACK", "LOAD"):
        changed = lief.ELF.parse(os.fspath(good))
        assert changed is not None
        parts = [part for part in changed.segments if part.type.name == kind and part.has(lief.ELF.Segment.FLAGS.W)]
        parts[0].add(lief.ELF.Segment.FLAGS.X)
        changed.write(os.fspath(tmp_path / kind))
        assert "nx" in inspect.read(good).hardening
        assert hardened.lacking(target, inspect.read(tmp_path / kind)) == ("nx", "assertions")


@pytest.mark.parametrize("name", ["windows-x86_64", "windows-x86"])
def test_programs_for_windows(tmp_path: Path, name: str) -> None:
    """The linker gives all but the guard of the stack, whose other half is the runner's."""
    target = get_target(name)
    found = inspect.read(made(target, tmp_path, CODE))
    assert hardened.lacking(target, found) == ("stack_protector",)
    changed = lief.PE.parse(os.fspath(tmp_path / "program.exe"))
    assert changed is not None
    flags = lief.PE.OptionalHeader.DLL_CHARACTERISTICS
    for flag in (flags.DYNAMIC_BASE, flags.NX_COMPAT, flags.HIGH_ENTROPY_VA):
        changed.optional_header.remove(flag)
    changed.write(os.fspath(tmp_path / "changed.exe"))
    lost = hardened.lacking(target, inspect.read(tmp_path / "changed.exe"))
    assert lost == hardened.promised(target, found)


@pytest.mark.parametrize("name", ["linux-x86_64", "linux-armv6"])
@pytest.mark.parametrize(("code", "said"), [(SMASH, "survived\n"), (BEYOND, "1\n")], ids=["stack", "vector"])
def test_what_goes_beyond_an_end_ends_the_program(tmp_path: Path, name: str, code: str, said: str) -> None:
    """An overwritten stack, and an element that a vector does not have."""
    target = get_target(name)
    program = made(target, tmp_path, code, language="cpp")
    platform = least(target)
    assert platform.run(program, []).stdout == said
    ended = platform.run(program, ["now"])  # musl writes the first line at once: what it said does not count
    assert ended.returncode < 0 or ended.returncode >= 128
    assert code == SMASH or ended.stdout == ""


@pytest.mark.parametrize("name", ["linux-arm64", "linux-armv7", "linux-armv6"])
def test_the_guard_of_the_stack_is_another_one_each_time(tmp_path: Path, name: str) -> None:
    """zig's own, which it falls back to, is the same in every program."""
    target = get_target(name)
    program = made(target, tmp_path, GUARD, language="cpp")
    found = {least(target).run(program, []).stdout for _ in range(3)}
    assert len(found) == 3, found


def test_the_guard_of_the_stack_on_windows(tmp_path: Path) -> None:
    target = get_target("windows-x86_64")
    ours = tmp_path / "guard.o"
    source = ROOT / "runtime/base/stack_guard_windows.cpp"
    compilers, flags = zig.ensure(target), families.hardening(target)
    subprocess.run([compilers.cxx, *flags.compile, "-O2", "-std=c++17", "-c", source, "-o", ours], check=True)
    program = made(target, tmp_path, GUARD, extra=[os.fspath(ours)], language="cpp")
    assert hardened.lacking(target, inspect.read(program)) == ()
    found = {least(target).run(program, []).stdout for _ in range(3)}
    assert len(found) == 3, found
    program = made(target, tmp_path, SMASH, extra=[os.fspath(ours)], language="cpp")
    assert least(target).run(program, []).stdout.strip() == "survived"
    ended = least(target).run(program, ["now"])
    assert (ended.stdout, ended.returncode != 0) == ("", True)
    assert "*** stack smashing detected ***" in ended.stderr
