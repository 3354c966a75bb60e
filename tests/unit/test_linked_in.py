"""What compilers link in: by target, with the versions that their own headers say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from toolchains.bundle import layout
from toolchains.compilers import linked_in, ndk
from toolchains.compilers.linked_in import LinkedIn, within
from toolchains.inspect.binary import Binary
from toolchains.targets import get_target

LIBC = {"linux-armv6": "musl", "windows-arm64": "mingw-w64", "macos-x86_64": ""}


def _mingw(*version: int) -> str:
    """The lines of mingw-w64's header with its version."""
    parts = zip(("MAJOR", "MINOR", "BUGFIX"), version, strict=True)
    return "".join(f"#define __MINGW64_VERSION_{part} {number}\n" for part, number in parts)


@pytest.fixture
def zig_lib(tmp_path: Path) -> Path:
    """The parts of zig's distribution that are read."""
    lib = tmp_path / "ziglang" / "lib"
    texts = {
        "libcxx/include/__config": "#  define _LIBCPP_VERSION 220108\n",
        "libc/include/any-windows-any/_mingw_mac.h": "".join(
            f"#define __MINGW64_VERSION_{part} {number}\n"
            for part, number in (("MAJOR", 15), ("MINOR", 0), ("BUGFIX", 2))
        ),
        "libc/musl/src/internal/version.h": '#define VERSION "1.2.5"\n',
    }
    for name, text in texts.items():
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(text, encoding="utf-8")
    return lib


@pytest.mark.parametrize("name", LIBC)
def test_programs_without_the_systems_libraries(zig_lib: Path, name: str) -> None:
    found = {one.name: one.version for one in linked_in.of_zig("0.17.0", zig_lib, get_target(name), "")}
    libc = {"musl": {"musl": "1.2.5"}, "mingw-w64": {"mingw-w64": "15.0.2"}}.get(LIBC[name], {})
    unwind = {} if name.startswith("macos") else {"libunwind": "22.1.8"}
    assert found == {"zig-compiler-rt": "0.17.0", "libc++": "22.1.8", "libc++abi": "22.1.8", **libc, **unwind}


def test_libstdcxx_is_in_what_does_not_need_the_devices(zig_lib: Path) -> None:
    linked = linked_in.of_zig("0.17.0", zig_lib, get_target("linux-arm64"), "12.2.0-14")
    alone = within(linked, ["libc.so.6", "libgcc_s.so.1"])
    assert [(one.name, one.version) for one in alone] == [
        ("zig-compiler-rt", "0.17.0"), ("glibc", "2.28"), ("libstdc++", "12.2.0-14"),
    ]  # fmt: skip
    assert [one.name for one in within(linked, ["libc.so.6", "libstdc++.so.6"])] == ["zig-compiler-rt", "glibc"]
    assert alone[2].purl == "pkg:generic/libstdc%2B%2B@12.2.0-14"


@pytest.mark.parametrize(
    ("name", "macros", "expected"),
    [
        ("linux-arm64", "#define __GLIBC__ 2\n#define __GLIBC_MINOR__ 36\n", {"libgcc": "12.2.0", "glibc": "2.36"}),
        (
            "windows-x86_64",
            _mingw(2, 1, 0),
            {"libgcc": "12.2.0", "libstdc++": "12.2.0", "mingw-w64": "2.1.0"},
        ),
    ],
)
def test_gcc_says_what_its_c_library_is(
    name: str, macros: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def answer(argv: list[str], what: str) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 0, macros, "")

    monkeypatch.setattr(linked_in, "run", answer)
    found = {one.name: one.version for one in linked_in.of_gnu("12.2.0", "/usr/bin/gcc", get_target(name))}
    assert found == expected
    assert len(asked) == 1


def test_the_ndk_has_one_file_of_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = get_target("android-arm64")
    monkeypatch.setattr(ndk, "named", lambda: str(tmp_path))
    folder = tmp_path / "toolchains/llvm/prebuilt" / ndk._host_tag()
    (folder / "lib/clang/18").mkdir(parents=True)
    assert [one.texts for one in ndk.linked(target)] == [()] * 4
    (folder / "NOTICE").write_text("terms", encoding="utf-8")
    assert {(one.version, one.texts) for one in ndk.linked(target)} == {("18", (folder / "NOTICE",))}


def test_texts_are_delivered_with_what_is_in_a_program(tmp_path: Path) -> None:
    text = tmp_path / "COPYRIGHT"
    text.write_text("terms", encoding="utf-8")
    musl = LinkedIn("musl", "1.2.5", "MIT", "https://musl.libc.org", (text,))
    shared = LinkedIn("libstdc++", "12", "MIT", "https://gcc.gnu.org", (text,), instead_of="libstdc++.so.6")
    program = Binary(tmp_path / "x", "aarch64", "none", "", "", ("libstdc++.so.6",), (), {})
    assert layout.linked_into([program], [musl, shared], tmp_path / "out") == (musl,)
    assert (tmp_path / "out/licenses/musl/COPYRIGHT").read_text(encoding="utf-8") == "terms"
    assert not (tmp_path / "out/licenses/libstdc++").exists()
    assert layout.linked_into([], [musl], tmp_path / "none") == ()
    assert not (tmp_path / "none").exists()
