"""The shell wrapper around zig: what it makes of a compiler's command line, and how long it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import executable, ran, well
from toolchains.compilers import zig
from toolchains.targets import get_target

Wrap = Callable[..., list[str]]
BEFORE, AFTER, LINK = ["-before"], ["-I/inc dir"], ["-nostdlib++", "/l/libstdc++.so"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A program in the place of zig that prints its arguments."""
    return executable(tmp_path / "a folder/zig", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n")


@pytest.fixture
def wrap(fake: Path, tmp_path: Path) -> Wrap:
    """Call the wrapper as ``c++`` of a target; what zig gets between the target and the end."""

    def call(target: str, *words: str, cpu: str = "") -> list[str]:
        chosen = dataclasses.replace(get_target(target), zig_cpu=cpu)
        text = zig.wrapper("c++", fake, chosen, before=BEFORE, after=AFTER, link=LINK)
        got = well(ran([executable(tmp_path / "c++", text), *words])).stdout.splitlines()
        assert got[:3] == ["c++", "-target", chosen.zig_triple]
        assert got[-1:] == AFTER
        return got[3:-1]

    return call


def script(name: str) -> str:
    """The option with the linker script ``name`` that `wrap` uses."""
    return f"-Wl,-T,{zig._scripts(get_target('linux-arm64'))[name]}"


@pytest.mark.parametrize(
    ("target", "flags", "cpu"),
    [
        ("linux-arm64", ["-march=armv8.2-a+fp16+dotprod"], "generic+v8_2a+fullfp16+dotprod"),
        ("linux-arm64", ["-march=armv8-a"], "generic+v8a"),
        ("linux-arm64", ["-march=armv8.6-a+i8mm", "-march=armv9-a+sme"], "generic+v9a+sme"),
        ("linux-arm64", ["-march=armv8-a+crypto"], "generic+v8a+aes+sha2"),
        ("linux-arm64", ["-mcpu=cortex-a53"], "cortex_a53"),
        ("linux-arm64", ["-mcpu=neoverse-n1+crypto"], "neoverse_n1+aes+sha2"),
        ("linux-armv7", ["-march=armv7-a", "-mfpu=neon"], "generic+v7a+neon"),
        ("linux-armv7", ["-mfpu=neon-vfpv4", "-march=armv7-a"], "generic+v7a+neon+vfp4"),
        ("linux-armv7", ["-march=armv8.2-a+fp16", "-mfpu=neon-fp-armv8"], "generic+v8_2a+fullfp16+neon+fp_armv8"),
        ("linux-armv7", ["-mfpu=neon-fp16", "-march=armv7-a"], "generic+v7a+neon+fp16"),
        ("linux-arm64", ["-march=armv8.2-a+dotprod+nofp16"], "generic+v8_2a+dotprod-fullfp16"),
        ("linux-arm64", ["-march=armv8-a+nocrypto"], "generic+v8a-aes-sha2"),
        ("linux-arm64", ["-march=armv9-a+sve2-aes+sme-f64f64"], "generic+v9a+sve2_aes+sme_f64f64"),
        ("linux-arm64", ["-march=armv8.5-a+simd+memtag"], "generic+v8_5a+neon+mte"),
        ("linux-armv6", ["-march=armv6kz", "-mfpu=vfp", "-mfloat-abi=hard"], "generic+v6kz+vfp2"),
    ],
)
def test_arm_flags_become_zigs(wrap: Wrap, target: str, flags: list[str], cpu: str) -> None:
    assert wrap(target, *flags, "-c", "x.c") == [f"-mcpu={cpu}", *BEFORE, "-c", "x.c"]


def test_words_arrive_and_other_links_are_left_alone(wrap: Wrap) -> None:
    words = ["a b", "it's", 'say "hi"', "$HOME", "`id`", "*", '-DX=\\"1.0\\"', "", "semi;colon", "-DNAME=a b"]
    assert wrap("linux-arm64", "-c", "x.c", *words) == [*BEFORE, "-c", "x.c", *words]
    assert wrap("linux-arm64", "-nostdlib", "x.o") == [*BEFORE, "-nostdlib", "x.o", "-O2", script("no_debug")]
    assert wrap("android-arm64", "-r", "x.o") == [*BEFORE, "-r", "x.o", "-O2"]
    assert wrap("linux-armv7", "-c", "x.c", cpu="generic+v7a+neon")[0] == "-mcpu=generic+v7a+neon"
    assert wrap("linux-armv7", "-mfpu=vfpv3-d16", "-c", "x.c", cpu="generic+v7a")[0] == "-mcpu=generic+v7a+vfp3d16"
    flags = ["-march=haswell", "-mavx512f", "-mtune=generic", "-c", "x.c"]
    assert wrap("linux-x86_64", *flags) == [*BEFORE, *flags]


@pytest.mark.parametrize("words", [["-c", "x.c"], ["-E", "x.c"], ["-S", "x.s"], ["--version"]])
def test_libraries_are_added_to_links_only(wrap: Wrap, words: list[str]) -> None:
    assert wrap("linux-arm64", *words) == [*BEFORE, *words]


@pytest.mark.parametrize("word", ["x.o", "x.cpp", "libx.a", "libx.so", "libx.so.6"])
def test_links_get_the_libraries(wrap: Wrap, word: str) -> None:
    optimized = [] if word.endswith(".cpp") else ["-O2"]
    expected = [*BEFORE, word, "-o", "app", *optimized, script("no_debug"), "-Wl,--as-needed", *LINK]
    assert wrap("linux-arm64", word, "-o", "app") == expected


def xlinker(*parts: str) -> list[str]:
    """As CMake passes linker arguments through clang."""
    return [word for part in parts for word in ("-Xlinker", part)]


PUSHED = ["-Wl,--no-as-needed", "/p/libq.so", "-Wl,--as-needed"]


@pytest.mark.parametrize(("words", "expected"), [
    (["-Wl,--push-state,--no-as-needed,/p/libq.so,--pop-state"], PUSHED),
    (["-Wl,--push-state,--no-as-needed", "/p/libq.so", "-Wl,--pop-state"], PUSHED),
    (xlinker("--push-state", "--no-as-needed", "/p/libq.so", "--pop-state"), PUSHED),
    (["-Wl,--push-state,--no-as-needed,-lq,--pop-state"], ["-Wl,--no-as-needed", "-lq", "-Wl,--as-needed"]),
    (["-Wl,--no-as-needed", "-Wl,--push-state,--as-needed", "a.so", "-Wl,--pop-state", "b.so"],
     ["-Wl,--no-as-needed", "-Wl,--as-needed", "a.so", "-Wl,--no-as-needed", "b.so"]),
    (["-Wl,--as-needed,-rpath,$ORIGIN/../lib"], ["-Wl,--as-needed", "-Wl,-rpath,$ORIGIN/../lib"]),
    (xlinker("-rpath", "$ORIGIN"), xlinker("-rpath", "$ORIGIN")),
    (["-Wl,-rpath,$ORIGIN,-soname,libx.so"], ["-Wl,-rpath,$ORIGIN,-soname,libx.so"]),
    (["-Wl,-z,now,--no-as-needed,-z,relro"], ["-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,-z,relro"]),
])  # fmt: skip
def test_linker_state_that_zig_lacks(wrap: Wrap, words: list[str], expected: list[str]) -> None:
    end = ["-O2", script("no_debug"), "-Wl,--as-needed", *LINK]
    assert wrap("linux-arm64", *words, "m.o") == [*BEFORE, *expected, "m.o", *end]


@pytest.mark.parametrize("word", ["-s", "-Wl,-s", "-Wl,--strip-all"])
def test_symbols_are_dropped_by_a_script(wrap: Wrap, word: str) -> None:
    """zig's own -s costs minutes: it builds libc++ once more."""
    got = wrap("android-arm64", word, "x.o")
    assert script("no_symbols") in got
    assert script("no_debug") not in got
    assert word not in got


@pytest.mark.parametrize("flags", [["-g"], ["-g0", "-g2"], ["-gdwarf-4"]])
def test_debug_information_stays_where_it_is_asked_for(wrap: Wrap, flags: list[str]) -> None:
    assert wrap("android-arm64", *flags, "x.o")[: -len(LINK) - 1] == [*BEFORE, *flags, "x.o"]
    assert script("no_debug") in wrap("android-arm64", *flags, "-g0", "x.o")


def test_the_target_is_ours_whatever_the_caller_says(wrap: Wrap) -> None:
    words = ["-arch", "arm64", "-isysroot", "macosx", "-mmacosx-version-min=11.0", "-c", "x.c"]
    assert wrap("macos-arm64", *words) == [*BEFORE, "-c", "x.c"]
    assert wrap("linux-arm64", *words) == [*BEFORE, *words]
    assert wrap("android-x86", "-stdlib=libc++", "-c", "x.c") == [*BEFORE, "-c", "x.c"]
    flags = ["-arch", "arm64", "-isysroot", "/x/iPhoneOS.sdk", "-miphoneos-version-min=15.0"]
    assert wrap("ios-arm64", *flags, "-c", "a.c") == [*BEFORE, "-c", "a.c"]
    assert wrap("ios-arm64", "-mios-simulator-version-min=15.0", "-c", "a.c") == [*BEFORE, "-c", "a.c"]
    # Only a Mac's files are compiled with a Mac's.
    assert "-miphoneos-version-min=15.0" in wrap("macos-arm64", "-miphoneos-version-min=15.0", "-c", "a.c")
