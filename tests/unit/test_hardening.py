"""What binaries are promised to have: the table, the flags in Conan's profiles, and what is said of one without it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from core.errors import BuildError
from tests.unit.test_profiles import compilers, profile
from toolchains.bundle import conan
from toolchains.compilers import hardening
from toolchains.inspect import checks
from toolchains.inspect import hardening as hardened
from toolchains.inspect import needs as inspect
from toolchains.inspect.binary import Kind
from toolchains.systems import systems
from toolchains.targets import Target, get_target, load_targets

BUILT = [target for target in load_targets().values() if target.toolchains]
ALL = tuple(hardened.MEANINGS)


def binary(target: Target, kind: Kind = "program", *, without: str = "") -> inspect.Binary:
    have = tuple(name for name in ALL if name != without)
    return inspect.Binary(
        Path("/b/bin/pte_runner"), target.machine, "none", "", "", (), (), {}, kind=kind, hardening=have
    )


@pytest.mark.parametrize("target", BUILT, ids=lambda target: target.name)
def test_every_target_promises_something(target: Target) -> None:
    names = hardened.promised(target, binary(target))
    assert {"pie", "nx", "stack_protector"} <= set(names) <= set(ALL)
    assert ("high_entropy" in names) == (target.os == "windows" and target.machine in ("x86_64", "aarch64"))
    assert {"relro", "bind_now"} <= set(names) or target.os in ("windows", "macos", "ios")


def test_the_table_promises_what_has_a_meaning() -> None:
    for row in systems()["hardening"].values():
        assert set(row["promises"]) <= set(ALL)
        assert set(row) <= {"compile", "optimized", "link", "program", "promises"}


@pytest.mark.parametrize("missing", ["pie", "relro", "bind_now", "nx", "stack_protector", "fortify", "assertions"])
def test_a_program_without_it_is_refused_by_name(missing: str) -> None:
    target = get_target("linux-arm64")
    with pytest.raises(BuildError) as caught:
        checks.check_hardening(target, [binary(target, without=missing)], Path("/b"))
    assert caught.value.names == (f"pte_runner {hardened.MEANINGS[missing]}",)


def test_what_others_compiled_is_noted_and_not_refused() -> None:
    target = get_target("linux-arm64")
    theirs = dataclasses.replace(binary(target, "library", without="relro"), path=Path("/b/lib/libtheirs.so"))
    (noted,) = checks.check_hardening(target, [theirs], Path("/b"), prebuilt=[theirs.path])
    assert (noted.path, noted.lacks) == ("lib/libtheirs.so", ("relro",))
    with pytest.raises(BuildError, match=r"libtheirs\.so has no part that becomes read-only"):
        checks.check_hardening(target, [theirs], Path("/b"))


def test_a_small_library_may_have_nothing_to_watch() -> None:
    target = get_target("linux-arm64")
    assert hardened.lacking(target, binary(target, "library", without="stack_protector")) == ()
    assert hardened.lacking(target, binary(target, "object", without="pie")) == ()


@pytest.mark.parametrize("target", BUILT, ids=lambda target: target.name)
def test_profiles_carry_the_flags(target: Target) -> None:
    flags = hardening.flags(target)
    values = profile(conan.render(target, compilers(target)))
    for language in ("cflags", "cxxflags"):
        words = json.loads(values[f"tools.build:{language}"])
        assert {*flags.compile, *flags.optimized, "-fstack-protector-strong"} <= set(words)
    assert json.loads(values["tools.build:exelinkflags+"]) == [*flags.link, *flags.program]
    assert json.loads(values["tools.build:sharedlinkflags"]) == ["-s", *flags.link]


def test_without_optimization_nothing_asks_for_it() -> None:
    """glibc's headers warn where its checks of sizes are asked for and cannot be had."""
    target = get_target("linux-x86_64")
    values = profile(conan.render(target, compilers(target), "Debug"))
    assert "FORTIFY" not in values["tools.build:cflags"]
    assert "-fstack-protector-strong" in values["tools.build:cflags"]
