"""Reading binaries and archives: real and crafted ones, what must be refused, and damage: never a traceback."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import random
import struct
from pathlib import Path

import pytest

from core.errors import BuildError
from tests.support import objects
from tests.support.objects import HARD_V6, archive, coff, elf, macho, pe, words
from toolchains.inspect import isa
from toolchains.inspect import needs as inspect
from toolchains.inspect.archives import members
from toolchains.inspect.archives import objects as archived
from toolchains.targets import get_target


def put(tmp_path: Path, data: bytes, name: str = "libx.a") -> Path:
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


def binary(**changes: object) -> inspect.Binary:
    base = inspect.Binary(
        path=Path("bin/pte_runner"), machine="aarch64", float_abi="none", interpreter="/lib/ld-linux-aarch64.so.1",
        soname="", needed=("libc.so.6", "libexecutorch.so"), runpath=("$ORIGIN", "$ORIGIN/../lib"),
        versions={"GLIBC": "2.17", "GLIBCXX": "3.4.21"},
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


LIBRARY = binary(
    path=Path("lib/libexecutorch.so"), interpreter="", soname="libexecutorch.so", needed=("libc.so.6", "libm.so.6"),
    versions={"GLIBC": "2.27", "CXXABI": "1.3.9"},
)  # fmt: skip


def test_other_machines_this_one_and_half_a_file(tmp_path: Path) -> None:
    data = elf("aarch64", {}, kind=3)
    assert inspect.read(put(tmp_path, data[:18] + struct.pack("<H", 243) + data[20:])).machine == "EM_RISCV"
    found = inspect.read(Path("/proc/self/exe").resolve())
    assert found.machine == platform.machine()
    assert found.interpreter.startswith("/lib")
    assert "libc.so.6" in found.needed
    assert inspect.number(found.versions["GLIBC"]) >= (2, 2)
    with pytest.raises(BuildError, match="not a whole ELF file"):
        inspect.read(put(tmp_path, data[:-100]))


@pytest.mark.parametrize(("cpu_arch", "vfp_args", "flags", "expected"), [
    (10, 1, 0x5000400, ("armv7l", "hard")), (10, None, 0x5000200, ("armv7l", "soft")),
    (10, 1, 0x5000000, ("armv7l", "hard")), (14, 1, 0x5000400, ("armv7l", "hard")),
    (6, 1, 0x5000400, ("armv6l", "hard")), (7, None, 0x5000200, ("armv6l", "soft")),
    (3, None, 0x5000200, ("arm", "soft")),
])  # fmt: skip
def test_arm(tmp_path: Path, cpu_arch: int, vfp_args: int | None, flags: int, expected: tuple[str, str]) -> None:
    data = bytearray(elf("arm", {}, attributes=objects.arm_attributes(cpu_arch, vfp_args), kind=3))
    struct.pack_into("<I", data, 36, flags)
    found = inspect.read(put(tmp_path, bytes(data)))
    assert (found.machine, found.float_abi) == expected


def test_a_good_bundle_has_needs_and_no_problems() -> None:
    needs = inspect.needs(get_target("linux-arm64"), [binary(), LIBRARY])
    assert (needs.machine, needs.libc, needs.glibc, needs.glibcxx) == ("aarch64", "glibc", "2.27", "3.4.21")
    assert needs.loader == "/lib/ld-linux-aarch64.so.1"
    assert needs.libraries == ("libc.so.6", "libm.so.6")
    assert needs.cpu_features == ("fp", "asimd")
    assert inspect.problems(get_target("linux-arm64"), [binary(), LIBRARY]) == []


@pytest.mark.parametrize(("library", "libc"), [("libc.so.6", "glibc"), ("libc.so", "bionic"), ("libm.so.6", "static")])
def test_libraries_without_a_program_name_their_libc(library: str, libc: str) -> None:
    """What an SDK has: a shared library asks for no loader."""
    alone = dataclasses.replace(LIBRARY, needed=(library,))
    member = dataclasses.replace(LIBRARY, path=Path("lib/libslipway.a"), member="a.o", soname="", needed=())
    for binaries in ([alone], [member, alone]):
        assert inspect.needs(get_target("linux-arm64"), binaries).libc == libc


def wrong(target: str, *files: Path) -> list[str]:
    return inspect.problems(get_target(target), [item for file in files for item in inspect.read_all(file)])


def test_every_member_of_an_archive_is_read(tmp_path: Path) -> None:
    good, bad = elf("aarch64", {"f": b"\0" * 4}), elf("x86_64", {"f": b"\xc3"})
    file = put(tmp_path, archive({"a.o": good, "b.o": bad}))
    assert wrong("linux-arm64", file) == ["libx.a(b.o) is for x86_64, not aarch64"]
    with pytest.raises(BuildError, match="no object file in it"):
        list(inspect.read_all(put(tmp_path, archive({}))))
    with pytest.raises(BuildError, match=r"libx\.a\(b\.o\) is not a whole ELF file"):
        list(inspect.read_all(put(tmp_path, archive({"a.o": good, "b.o": good[:80]}))))


def test_objects_for_other_arms(tmp_path: Path) -> None:
    """Compiled for soft floats, for hard ones, and assembly, which says nothing."""
    soft = objects.elf("arm", {"f": b"\0" * 4}, attributes=objects.arm_attributes(6, None))
    hard = objects.elf("arm", {"f": b"\0" * 4}, attributes=objects.HARD_V6)
    silent = objects.elf("arm", {"f": b"\0" * 4}, attributes=objects.arm_attributes(6, None, None))
    file = put(tmp_path, objects.archive({"soft.o": soft, "hard.o": hard, "assembly.o": silent}))
    assert wrong("linux-armv6", file) == ["libx.a(soft.o) has the float ABI soft, not hard"]
    later = objects.elf("arm", {"f": b"\0" * 4}, attributes=objects.arm_attributes(10, 1))
    file = put(tmp_path, objects.archive({"f32-vadd-neon-u8.c.o": later, "operator-run.c.o": later}))
    assert wrong("linux-armv6", file) == ["libx.a(operator-run.c.o) is for armv7l, not armv6l"]
    older = {"f": b"\0" * 4}
    file = put(tmp_path, objects.archive({"armsimd32.c.o": objects.elf("arm", older, attributes=objects.HARD_V6)}))
    assert wrong("linux-armv7", file) == []
    program = put(tmp_path, objects.elf("arm", older, attributes=objects.HARD_V6, kind=2), "app")
    assert "app is for armv6l, not armv7l" in wrong("linux-armv7", program)


def test_other_systems_have_rules_of_their_own(tmp_path: Path) -> None:
    good = put(tmp_path, objects.pe("x86_64", b"\xc3", ["KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll"]), "good.exe")
    assert wrong("windows-x86_64", good) == []
    bad = put(tmp_path, objects.pe("x86_64", b"\xc3", ["KERNEL32.dll", "libstdc++-6.dll"]), "bad.exe")
    (message,) = wrong("windows-x86_64", bad)
    assert message.startswith("libstdc++-6.dll would have to be on the device")
    assert wrong("windows-arm64", good) == ["good.exe is for x86_64, not aarch64"]
    needs = inspect.needs(get_target("windows-x86_64"), [inspect.read(good)])
    assert (needs.libc, needs.libraries[0]) == ("msvcrt", "KERNEL32.dll")
    code = {"f": b"\0" * 4}
    old = put(tmp_path, objects.macho("aarch64", code, minimum=(11, 0)), "old.o")
    new = put(tmp_path, objects.macho("aarch64", code, minimum=(14, 2)), "new.o")
    assert wrong("macos-arm64", old) == []
    assert wrong("macos-arm64", new) == ["new.o needs macos 14.2 (at most 11.0)"]
    file = put(tmp_path, objects.elf("x86_64", {"f": b"\xc3"}), "a.o")
    assert wrong("windows-x86_64", file) == ["a.o is ELF, which windows does not load"]


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("linux-arm64", {"machine": "x86_64"}, "pte_runner is for x86_64, not aarch64"),
        ("linux-arm64", {"float_abi": "hard"}, "float ABI hard, not none"),
        ("linux-arm64", {"runpath": ("$ORIGIN", "/home/me/.cache/lib")}, "looks for libraries in /home/me/.cache/lib"),
        ("linux-arm64", {"needed": ("libexecutorch.so", "libfoo.so.1")}, "libfoo.so.1 would have to be on the device"),
        ("linux-arm64", {"interpreter": "/lib/ld-musl-aarch64.so.1"}, "C library musl, not glibc"),
        ("linux-arm64", {"interpreter": "/system/bin/linker64"}, "C library bionic, not glibc"),
        ("linux-arm64", {"interpreter": ""}, "C library static, not glibc"),
        ("linux-arm64", {"alignment": 4096}, "aligned to 4096 bytes: kernels with pages of 65536"),
        ("linux-arm64", {"exec_stack": True}, "asks for an executable stack"),
        ("linux-arm64", {"interpreter": "/lib64/ld-linux-aarch64.so.1"}, "not /lib/ld-linux-aarch64.so.1"),
        ("linux-arm64", {"paths": ("/home/me/slipway/",)}, "has /home/me/slipway/ in it, a path of this machine"),
        ("linux-arm64", {"level": "x86-64-v3"}, "says that it needs x86-64-v3"),
        ("macos-arm64", {"format": "mach-o", "system": "ios"}, "is for ios, not macos"),
        ("ios-arm64", {"format": "mach-o", "system": "ios_simulator"}, "is for ios_simulator, not ios"),
        ("ios-arm64", {"format": "mach-o"}, "names no platform"),
        ("macos-arm64", {"format": "mach-o", "needed": ("/opt/homebrew/lib/libomp.dylib",)}, "libomp.dylib would have"),
        ("android-arm64", {"relocatable": False}, "is not position independent, and Android starts nothing else"),
    ],
)
def test_problems_are_named(target: str, changes: dict[str, object], message: str) -> None:
    found = inspect.problems(get_target(target), [binary(**changes)])
    assert any(message in line for line in found), found


def test_paths_of_this_machine_are_found(tmp_path: Path) -> None:
    inside = f"{tmp_path}/cache/toolchains/x.c".encode() + b"\0"
    for machine, data in (
        ("linux-arm64", objects.elf("aarch64", {"f": inside})),
        ("windows-arm64", objects.coff("aarch64", {"f": inside})),
        ("macos-arm64", objects.macho("aarch64", {"f": inside})),
    ):
        (message,) = wrong(machine, put(tmp_path, data, "a.o"))
        assert message == f"a.o has {tmp_path}/cache/ in it, a path of this machine"
    data = objects.coff("aarch64", {f"{tmp_path}/cache/x.c": b"\0" * 4}, bss=1)
    whole = objects.coff("aarch64", {f"{tmp_path}/cache/x.c": b"\0" * 4}, bss=len(data))
    assert wrong("windows-arm64", put(tmp_path, whole, "a.o")) == []


MEMBERS = {"short.o": b"one", "a-name-longer-than-fifteen.c.o": b"four", "another-long-name.c.obj": b"\x7fELF"}
PATH = Path("libx.a")


@pytest.mark.parametrize("flavour", ["gnu", "bsd", "coff"])
def test_an_archive_is_read_whole_or_named(flavour: str) -> None:
    data = archive(MEMBERS, flavour)
    assert {member.name: bytes(member.data) for member in members(PATH, data)} == MEMBERS
    for size in (len(data) - 2, len(data) - 70, 20):
        with pytest.raises(BuildError, match=r"libx\.a is damaged"):
            list(members(PATH, data[:size]))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"`\n", b"xx", "no member's header at byte 8"),
        (b"/0 ", b"/99", "a name at 99"),
        (b"3         `\n", b"-3        `\n", "is cut off"),
    ],
)
def test_damage_is_said(old: bytes, new: bytes, why: str) -> None:
    data = archive(MEMBERS)
    assert old in data
    with pytest.raises(BuildError, match=why):
        list(members(PATH, data.replace(old, new, 1)))


def test_odd_members_and_archives() -> None:
    library = archive({"kernel32.dll": b"\0\0\xff\xff\0\0\x64\x86", "code.obj": b"\x64\x86"}, "coff")
    assert [name for name, _ in archived(PATH, library)] == ["code.obj"]
    assert list(archived(Path("a.o"), b"\x7fELF")) == [("", b"\x7fELF")]
    data = archive({"x.o": b"one"}, "bsd").replace(b"#1/8  ", b"#1/999")
    with pytest.raises(BuildError, match="a name of 999 bytes"):
        list(members(PATH, data))
    with pytest.raises(BuildError, match="thin archive"):
        list(members(PATH, b"!<thin>\n"))


ARM = elf("arm", {"f": words(0xE12FFF1E, 0xE3000001)}, attributes=HARD_V6, marks=[(0, "$a"), (4, "$d")])
FILES = {
    "elf32": ARM,
    "elf64": elf("aarch64", {"f": words(0xD65F03C0), "g": words(0x4E829420)}),
    "elf program": elf("x86_64", {"f": b"\xc5\xfc\x58\xc1\xc3"}, kind=2),
    "coff": coff("x86_64", {"f": b"\x62\xf1\x7c\x48\x58\xc1\xc3"}),
    "pe": pe("x86_64", b"\xc3", ["KERNEL32.dll", "foreign.dll"]),
    "mach-o": macho("aarch64", {"f": words(0xD65F03C0, 0, 0)}, pools=[(4, 4)]),
    "archive": archive({"a.o": ARM, "a-name-longer-than-fifteen.o": ARM}),
    "bsd archive": archive({"a.o": macho("x86_64", {"f": b"\xc3"})}, "bsd"),
    "coff archive": archive({"a-name-longer-than-fifteen.obj": coff("i686", {"f": b"\xc3"})}, "coff"),
}
TARGET = get_target("linux-arm64")


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_read_and_damage_is_an_error_and_no_traceback(tmp_path: Path, name: str) -> None:
    file = tmp_path / "binary"
    file.write_bytes(FILES[name])
    assert list(inspect.read_all(file))
    assert isa.scan(TARGET, file).instructions
    file.write_bytes(FILES[name][: len(FILES[name]) // 2])
    try:
        assert isa.scan(TARGET, file).instructions == 0, "which is refused: tests/unit/test_isa.py"
    except BuildError as error:
        assert "binary" in str(error)
    draw = random.Random(0)  # noqa: S311
    for _ in range(30):
        content = bytearray(FILES[name])
        for place in draw.choices(range(len(content)), k=draw.randrange(13)):
            content[place] = draw.randrange(256)
        file.write_bytes(content[: draw.choice((len(content), draw.randrange(len(content))))])
        with contextlib.suppress(BuildError):
            list(inspect.read_all(file))
        with contextlib.suppress(BuildError):
            isa.scan(TARGET, file)
