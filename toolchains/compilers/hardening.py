"""The flags that make a fault in a program harder to use by an attacker, by C library: the table ``systems.toml``.

`toolchains.inspect.checks` looks at what came of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolchains.targets import Target
from toolchains.tools import hardening


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


def flags(target: Target) -> Flags:
    """What compilers and linkers are given for ``target``."""
    row = hardening(target.libc)
    return Flags(*(tuple(row.get(name, ())) for name in ("compile", "optimized", "link", "program")))
