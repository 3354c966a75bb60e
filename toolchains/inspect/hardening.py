"""Whether a program is hardened against the exploitation of its faults, as ``systems.toml`` promises.

What is promised there is read back from every binary that we compile: a flag that a build system or a linker drops
leaves no other trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolchains.inspect.binary import Binary
from toolchains.targets import Target
from toolchains.tools import hardening

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


def promised(target: Target, binary: Binary) -> tuple[str, ...]:
    """What ``binary``, compiled by us for ``target``, must have."""
    if binary.kind == "object":
        return ()
    names: list[str] = list(hardening(target.libc)["promises"])
    if binary.kind == "library":
        names = [name for name in names if name not in _PROGRAMS_ONLY]
    if target.bits == 32:
        names = [name for name in names if name != "high_entropy"]
    return tuple(names)


def lacking(target: Target, binary: Binary) -> tuple[str, ...]:
    """The properties that ``binary`` lacks."""
    return tuple(name for name in promised(target, binary) if name not in binary.hardening)


def problems(target: Target, binary: Binary) -> Iterator[str]:
    """The same in words: ``pte_runner has no part that becomes read-only after loading (-z relro)``."""
    for name in lacking(target, binary):
        yield f"{binary.name} {MEANINGS[name]}"
