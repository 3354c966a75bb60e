"""libslipway for iPhones, Xcode's simulator and Macs: built here, checked by headers and symbols, and never run."""

from __future__ import annotations

import plistlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import lief
import pytest

from core.paths import ROOT
from core.processes.commands import run
from tests.support.processes import ran, well
from toolchains.bundle import toolchain_file
from toolchains.bundle.sdk import Sdk, build_sdk
from toolchains.compilers import families, zig
from toolchains.inspect import archives
from toolchains.inspect import needs as inspect
from toolchains.targets import Target, get_target

from .test_libslipway import EXAMPLES, configure

pytestmark = pytest.mark.build

PHONE = get_target("ios-arm64")
SLICES = {"ios-arm64": PHONE, "ios-arm64-simulator": PHONE.simulator()}
_STAB, _TYPE, _EXTERNAL = 0xE0, 0x0E, 0x01
"""Masks of a Mach-O symbol's type: for debuggers, kind (0: undefined), visible to other objects."""


def compiled(
    target: Target, source: Path, out: Path, *words: str | Path, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Compile a file as libslipway is compiled."""
    compilers, flags = zig.ensure(target), families.hardening(target)
    program = compilers.cxx if source.suffix == ".cpp" else compilers.cc
    done = ran([program, *flags.compile, *flags.optimized, "-O2", *words, "-c", source, "-o", out])
    return well(done) if check else done


def symbols(files: Iterable[Path]) -> tuple[set[str], set[str]]:
    """The external symbols that object files and archives need of others, and those that they have."""
    needed: set[str] = set()
    has: set[str] = set()
    for file in files:
        for _, data in archives.objects(file, file.read_bytes()):
            parsed = lief.MachO.parse(data)
            item = parsed.at(0) if parsed is not None else None  # lief's parts live as long as the whole
            assert item is not None
            for symbol in item.symbols:
                if symbol.raw_type & _EXTERNAL and not symbol.raw_type & _STAB:
                    (has if symbol.raw_type & _TYPE else needed).add(str(symbol.name))
    return needed - has, has


def links(names: Iterable[str], folder: Path) -> str:
    """What zig says when it links a program for a Mac that refers to all of ``names``: nothing when it finds them.

    It has a list of what Apple's libSystem exports there; there is none for iOS. For libc++ of the least iOS its
    headers see to that.
    """
    lines = [".section __DATA,__data", ".p2align 3", *(f".quad {name}" for name in sorted(names))]
    (folder / "names.s").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (folder / "main.cpp").write_text("int main() { return 0; }\n", encoding="utf-8")
    return ran([zig.ensure(get_target("macos-arm64")).cxx, "main.cpp", "names.s", "-o", "names"], cwd=folder).stderr


def readable_by_apples_linker(archive: bytes) -> None:
    """Its list of symbols is of the BSDs' kind, and every object begins at a multiple of 8 bytes."""
    names, position = list[str](), len(archives.MAGIC)
    while position < len(archive):
        name, size = archive[position : position + 16].decode().strip(), int(archive[position + 48 : position + 58])
        assert name.startswith("#1/")
        begin, length = position + 60, int(name.removeprefix("#1/"))
        names.append(archive[begin : begin + length].rstrip(b"\0").decode())
        assert (begin + length) % 8 == 0, names[-1]
        position = begin + size + size % 2
    assert names[0].startswith("__.SYMDEF")
    assert len(names) > 100


@pytest.mark.parametrize("target", SLICES.values(), ids=SLICES)
def test_files_are_compiled_for_the_platform_and_its_least_version(target: Target, tmp_path: Path) -> None:
    """The sample of what follows that CI runs."""
    out = tmp_path / "text.o"
    includes = [f"-I{ROOT / name}" for name in ("runtime/include", "runtime")]
    compiled(target, ROOT / "runtime/base/text.cpp", out, "-std=c++17", *includes)
    found = inspect.read(out)
    assert (found.system, found.system_version, found.machine) == (target.platform, "15.0", "aarch64")
    assert inspect.problems(target, [found]) == []
    other = next(one for one in SLICES.values() if one != target)
    assert inspect.problems(other, [found]) == [f"text.o is for {target.platform}, not {other.platform}"]


def test_what_the_c_library_of_the_least_ios_lacks_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "later.cpp"
    source.write_text(
        "#include <charconv>\nchar text[9];\nvoid write(double x) { std::to_chars(text, text + 9, x); }\n",
        encoding="utf-8",
    )
    done = compiled(PHONE, source, tmp_path / "later.o", "-std=c++17", check=False)
    assert done.returncode != 0
    assert "introduced in iOS 16.3" in done.stderr


# `long`: XNNPACK and the engine are compiled twice, for minutes. CI compiles one file for each platform (above), and
# its unit tests pack an XCFramework.
@pytest.fixture(scope="module")
def sdk() -> Sdk:
    return build_sdk("ios-arm64")


@pytest.mark.long
def test_the_xcframework_says_what_its_libraries_are(sdk: Sdk) -> None:
    top = sdk.path / toolchain_file.XCFRAMEWORK
    listed = plistlib.loads((top / "Info.plist").read_bytes())
    rows = {row["LibraryIdentifier"]: row for row in listed["AvailableLibraries"]}
    assert rows.keys() == SLICES.keys()
    assert (top / "ios-arm64/libslipway.a").read_bytes() == (sdk.path / "lib/libslipway.a").read_bytes()
    for name, target in SLICES.items():
        row, folder = rows[name], top / name
        objects = list(inspect.read_all(folder / row["LibraryPath"]))
        assert len(objects) > 100
        found = {(item.system, item.system_version, item.machine) for item in objects}
        assert found == {(target.platform, "15.0", "aarch64")}
        headers = folder / row["HeadersPath"] / "slipway"
        assert {file.name for file in headers.iterdir()} == {"module.modulemap", "slipway.h", "slipway.hpp"}
        readable_by_apples_linker((folder / row["LibraryPath"]).read_bytes())
    paths = {entry.path for entry in sdk.manifest.checks.code}
    assert paths == {"lib/libslipway.a", "slipway.xcframework/ios-arm64/libslipway.a",
                     "slipway.xcframework/ios-arm64-simulator/libslipway.a"}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", SLICES)
def test_an_app_finds_all_that_it_needs(sdk: Sdk, name: str, tmp_path: Path) -> None:
    """The C example against the headers, through the module map, too; and every symbol that nothing in it has."""
    folder, target = sdk.path / toolchain_file.XCFRAMEWORK / name, SLICES[name]
    headers = f"-I{folder / 'Headers'}"
    app, objc = tmp_path / "run_once.o", tmp_path / "module.m"
    compiled(target, EXAMPLES / "run_once.c", app, headers)
    objc.write_text("@import slipway;\nunsigned use(void) { return slipway_abi_version(); }\n", encoding="utf-8")
    cache = f"-fmodules-cache-path={tmp_path / 'modules'}"
    compiled(target, objc, tmp_path / "module.o", "-fmodules", cache, headers)
    needed, has = symbols([app, folder / "libslipway.a"])
    assert "_slipway_program_load" in has
    assert not {name for name in needed if "slipway" in name}
    assert len(needed) > 100
    assert not {name for name in needed if name.endswith("sigaction")}
    # The linker makes this one.
    assert links(needed - {"___dso_handle"}, tmp_path) == ""
    assert "_slipway_nothing" in links({"_malloc", "_slipway_nothing"}, tmp_path)


@pytest.mark.long
def test_programs_for_macs_link(tmp_path: Path) -> None:
    """For Intel's: the iPhone's library has the same instructions as other Macs'."""
    sdk, target = build_sdk("macos-x86_64"), get_target("macos-x86_64")
    assert not sdk.manifest.shared
    folder = configure(sdk, EXAMPLES, tmp_path)
    for program in ("run_once", "camera"):
        found = inspect.read(folder / program)
        assert inspect.problems(target, [found]) == []
        assert (found.system, found.kind) == ("macos", "program")
        assert inspect.number(found.system_version) <= inspect.number(target.os_version)
    assert toolchain_file.NAME in {file.name for file in sdk.path.parent.iterdir()}
    run(["test", "-s", sdk.archive])
