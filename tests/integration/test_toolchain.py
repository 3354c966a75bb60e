"""The compilers by themselves; then zig for every target: C, C++ and assembly, by Conan and CMake, run where it can."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lief
import pytest

from core.files import locked
from tests.support.builds import least
from tests.support.processes import ran
from toolchains.bundle import conan
from toolchains.compilers import gnu, libstdcxx, zig
from toolchains.compilers.libstdcxx import library, sysroot
from toolchains.compilers.linked_in import within
from toolchains.inspect import needs
from toolchains.targets import Target, get_target, load_targets
from toolchains.tools import table

pytestmark = pytest.mark.build


@pytest.fixture(scope="module", params=["linux-x86_64", "linux-arm64"])
def target(request: pytest.FixtureRequest) -> Target:
    return get_target(request.param)


@pytest.mark.parametrize(
    ("code", "symbol"),
    [
        ("#include <filesystem>\nbool f(const char* p) { return std::filesystem::exists(p); }", "std::filesystem"),
        ("#include <charconv>\nvoid f(double& d) { std::from_chars(nullptr, nullptr, d); }", "std::from_chars"),
    ],
)
def test_what_old_systems_lack_is_a_link_error(target: Target, tmp_path: Path, code: str, symbol: str) -> None:
    source = tmp_path / "main.cpp"
    source.write_text(f"{code}\nint main() {{}}\n", encoding="utf-8")
    done = ran([zig.ensure(target).cxx, "-std=c++17", source, "-o", tmp_path / "program"])
    assert done.returncode != 0
    assert f"undefined symbol: {symbol}" in done.stderr


def test_the_stub_has_the_old_symbols_of_the_real_library(target: Target) -> None:
    """Every symbol the SDK's libraries could want is there, at the version it has on old systems, and none newer."""
    newest: dict[str, str] = table()["libstdcxx"]["newest"]
    adapted = libstdcxx.adapted(zig.program(), target, zig.caches())
    real = library(sysroot(target), target, "libstdc++.so.6")
    stub = next(path for path in adapted.inputs if path.name == "libstdc++.so.6")
    old = {symbol.name for symbol in libstdcxx.symbols(real) if libstdcxx.within(symbol.version, newest)}
    found = {symbol.name: symbol.version for symbol in libstdcxx.symbols(stub)}
    assert len(old) > 4000
    assert set(found) == old
    assert all(libstdcxx.within(version, newest) for version in found.values())
    assert needs.read(stub).soname == "libstdc++.so.6"


def test_an_interrupted_install_of_zig_leaves_no_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))

    def stop(folder: Path, *_: str) -> None:
        (folder / "ziglang").mkdir()
        shutil.copy("/bin/sh", folder / "ziglang" / "zig")
        raise KeyboardInterrupt

    monkeypatch.setattr(zig, "_install", stop)
    with pytest.raises(KeyboardInterrupt):
        zig.program()
    assert not zig.program_path().is_file()
    assert list((tmp_path / "cache" / "tools").iterdir()) == []


PROJECT = Path(__file__).parent / "everywhere"
EXPECTED = "42 2 7 0\n0: even 0\n1: odd 1\n2: even 2\n3: odd 3\n"
ELSEWHERE = {"linux-armv6", "windows-x86_64", "android-armv7", "android-x86", "android-x86_64", "macos-x86_64"}
"""Targets whose products other tests build, and Android's of x86: each system and instruction set is here once."""
TARGETS = [
    pytest.param(target, id=target.name)
    for target in load_targets().values()
    if "zig" in target.toolchains and target.working_engines  # for iOS zig links nothing: test_apple.py
    if target.name not in ELSEWHERE
]


MARKS = {
    "libc++abi": "cxa_throw", "libstdc++": "ZSt4cout", "libunwind": "Unwind_RaiseException", "musl": "libc_start_main",
}  # fmt: skip
"""A function or variable of each library that compilers link in, without leading underscores."""


def built(target: Target, folder: Path, toolchain: str = "zig") -> Path:
    """The program of `PROJECT`, built as a package's test program is."""
    log = folder / "log"
    with locked(conan.LOCK):
        host, own = conan.profile(target, toolchain), conan.build_profile()
        conan.conan(
            ["build", PROJECT, f"--profile:host={host}", f"--profile:build={own}", f"--output-folder={folder}"],
            log=log, what=f"Building for {target.name} with {toolchain}",
        )  # fmt: skip
    suffix = ".exe" if target.os == "windows" else ""
    (program,) = folder.rglob(f"everywhere{suffix}")
    return program


def pe(program: Path) -> lief.PE.Binary:
    binary = lief.PE.parse(os.fspath(program))
    assert binary is not None
    return binary


def runs(target: Target, program: Path) -> None:
    """The program says what it should on the least CPU of its target."""
    done = least(target).run(program, [])
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr


def libraries_in(binary: lief.Binary) -> set[str]:
    """The compilers' libraries that define something in a program."""
    if isinstance(binary, lief.MachO.Binary):
        section = 0x0E
        defined = {str(one.name) for one in binary.symbols if one.raw_type & section == section}
    else:
        defined = {str(one.name) for one in binary.symbols if one.shndx}  # type: ignore[attr-defined]
    names = {name.lstrip("_") for name in defined}
    found = {library for library, name in MARKS.items() if name in names}
    return found | ({"libc++"} if any(name.startswith("ZNSt3__1") for name in names) else set())


@pytest.mark.parametrize("target", TARGETS)
def test_it_builds_and_runs(target: Target, tmp_path: Path) -> None:
    program = built(target, tmp_path)
    binary = lief.parse(os.fspath(program))
    assert binary is not None
    names = {str(symbol.name).lstrip("_") for symbol in binary.symbols}
    if target.os == "windows":
        binary = pe(program)
        machines = {"x86_64": "AMD64", "i686": "I386", "aarch64": "ARM64"}
        assert binary.header.machine.name == machines[target.machine]
    elif target.os == "macos":
        assert isinstance(binary, lief.MachO.Binary)
        assert binary.header.cpu_type.name == {"x86_64": "X86_64", "aarch64": "ARM64"}[target.machine]
        assert binary.build_version is not None
        assert ".".join(map(str, binary.build_version.minos[:2])) == target.os_version
    else:
        assert isinstance(binary, lief.ELF.Binary)
        # Kernels are known by a program's symbols; debug information would carry this machine's paths.
        assert {"answer", "floor_mean"} <= names
        assert [section.name for section in binary.sections if str(section.name).startswith(".debug")] == []
        assert binary.has_interpreter == (target.libc == "glibc")
        runs(target, program)
    if target.os != "windows":  # its programs have no symbols
        said = {one.name for one in within(zig.linked(target), needs.read(program).needed)}
        assert libraries_in(binary) == said - {"glibc", "zig-compiler-rt"}


def test_gcc_does_the_same_where_it_is_installed(tmp_path: Path) -> None:
    """Which of the cross compilers are installed is the machine's affair; what is there must work."""
    for target in load_targets().values():
        if "gnu" not in target.toolchains:
            continue
        if reason := gnu.usable(target):
            assert gnu.package(target) in reason or "distribution" in reason
            continue
        folder = tmp_path / target.name
        folder.mkdir()
        program = built(target, folder, "gnu")
        if target.os == "windows":
            # Nothing of GCC's own has to be on the device: those libraries are linked in.
            binary = pe(program)  # LIEF's lists do not outlive it
            imported = {str(library.name).lower() for library in binary.imports}
            assert imported <= {"kernel32.dll", "msvcrt.dll", "advapi32.dll", "ucrtbase.dll"}
        else:
            runs(target, program)
