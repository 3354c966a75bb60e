"""What makes a fault in a program harder to use by an attacker: the flags that give it, and the look at the result.

The table is ``systems.toml``, by C library. What is promised there is read back from every binary that we compile: a
flag that a build system or a linker drops leaves no other trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolchains.binary import Binary
from toolchains.systems import systems
from toolchains.targets import Target

MEANINGS: Mapping[str, str] = {
    "pie": "is not position independent (-fPIE and -pie): it is loaded at the same address every time",
    "high_entropy": "does not take addresses beyond 4 GiB (--high-entropy-va)",
    "relro": "has no part that becomes read-only after loading (-z relro)",
    "bind_now": "looks functions up when they are first called (-z now)",
    "nx": "has memory that is both written to and executed (-z noexecstack)",
    "stack_protector": "does not watch its stack (-fstack-protector-strong)",
    "fortify": "calls the C library without its checks of sizes (_FORTIFY_SOURCE)",
    "assertions": "uses the C++ library without its checks of bounds (_GLIBCXX_ASSERTIONS)",
}
"""Every property that may be promised, and what a binary without it is or does."""

_PROGRAMS_ONLY = frozenset({"fortify", "assertions", "stack_protector"})
"""What a whole program of ours is sure to use. A small library may have no array at all, and so nothing to watch."""


@dataclass(frozen=True)
class Flags:
    """Words for the compilers of one target, all families alike."""

    compile: tuple[str, ...] = ()
    optimized: tuple[str, ...] = ()
    """For files that are compiled with optimization: without it, these checks are not there but cost."""
    link: tuple[str, ...] = ()
    """For programs and shared libraries."""
    program: tuple[str, ...] = ()
    """For programs alone."""


def _row(target: Target) -> Mapping[str, Any]:
    row: Mapping[str, Any] = systems()["hardening"][target.libc]
    return row


def flags(target: Target) -> Flags:
    """What compilers and linkers are given for ``target``."""
    row = _row(target)
    return Flags(*(tuple(row.get(name, ())) for name in ("compile", "optimized", "link", "program")))


def promised(target: Target, binary: Binary) -> tuple[str, ...]:
    """What ``binary``, compiled by us for ``target``, must have."""
    if binary.kind == "object":
        return ()
    names: list[str] = list(_row(target)["promises"])
    if binary.kind == "library":
        names = [name for name in names if name not in _PROGRAMS_ONLY]
    if target.bits == 32:
        names = [name for name in names if name != "high_entropy"]
    return tuple(names)


def lacking(target: Target, binary: Binary) -> tuple[str, ...]:
    """What ``binary`` should have and has not."""
    return tuple(name for name in promised(target, binary) if name not in binary.hardening)


def problems(target: Target, binary: Binary) -> Iterator[str]:
    """The same in words: ``pte_runner has no part that becomes read-only after loading (-z relro)``."""
    for name in lacking(target, binary):
        yield f"{binary.name} {MEANINGS[name]}"
