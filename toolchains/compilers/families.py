"""Compiler families behind one surface.

A family is a module with three functions: ``usable(target) -> str`` (empty, or why not and the command that
fixes it; cheap, no network), ``ensure(target) -> Compilers`` (fetches and prepares what is missing) and
``linked(target)`` (what of its own is in what it links).
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from core.errors import ConfigError, HostError
from toolchains import tools
from toolchains.compilers.linked_in import LinkedIn
from toolchains.targets import Target


@dataclass(frozen=True)
class Compilers:
    """Programs that compile for one target."""

    family: str
    version: str
    """For people and the manifest: ``0.17.0``."""
    key: str
    """Changes whenever the programs, their flags or what they link against change."""
    cc: str
    cxx: str
    ar: str
    ranlib: str
    conan: Mapping[str, str]
    """Conan's settings: ``compiler``, ``compiler.version``, ``compiler.libcxx``, and those unlike the table's."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Conan's configuration besides: what CMake must know of the system it builds for."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """CMake's: programs that it looks for besides the compilers."""
    flags: tuple[str, ...] = ()
    """Flags for every C and C++ file, ahead of the file's own: they raise the compilers' floor to the target's."""


class Family(Protocol):
    """What a compiler family's module offers."""

    def usable(self, target: Target) -> str:
        """Why it cannot build for ``target`` here, with the command that fixes it; empty when it can."""

    def ensure(self, target: Target) -> Compilers:
        """The compilers, fetched and prepared where needed."""

    def linked(self, target: Target) -> tuple[LinkedIn, ...]:
        """What they put into the programs and shared libraries that they link; call `ensure` first."""


FAMILIES = ("zig", "gnu", "ndk")
"""Every compiler family: modules of this package."""


def family(name: str) -> Family:
    """The module of the family ``name``.

    Raises:
        ConfigError: unknown family.
    """
    if name not in FAMILIES:
        raise ConfigError(f"There is no toolchain {name!r}.", f"toolchains are {', '.join(FAMILIES)}", "./inv targets")
    return cast("Family", importlib.import_module(f"toolchains.compilers.{name}"))


def refuse(name: str, target: Target) -> str:
    """Why the table of targets does not offer the family ``name`` for ``target``; empty when it does."""
    if name in target.toolchains:
        return ""
    others = f"{target.name} is built with {' or '.join(target.toolchains)}"
    why = target.not_built_with.get(name)
    return f"{name} does not build for {target.name}, for {why}; {others}" if why else f"{others}, not with {name}"


def require(name: str, target: Target, reason: str) -> None:
    """Refuse to go on with a family that is not usable.

    Args:
        reason: as its ``usable`` gives it, empty when it is usable.

    Raises:
        HostError: the reason, and the command that fixes it.
    """
    if reason:
        why, _, fix = reason.partition(": ")
        raise HostError(f"{name} cannot build for {target.name} here.", why, fix or "./inv targets")


def cross_conf(target: Target) -> dict[str, str]:
    """Conan's configuration that makes CMake cross-compile.

    Conan takes i686 on x86_64, and static Linux programs for Android, for this machine's own; CMake would then
    answer CMAKE_SYSTEM_PROCESSOR with this machine's.
    """
    system = {"linux": "Linux", "android": "Linux", "windows": "Windows"}.get(target.os)
    own = (platform.system().lower(), platform.machine()) == (target.os, target.machine)
    return {} if own or not system else {"tools.cmake.cmaketoolchain:system_name": system}


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


def hardening(target: Target) -> Flags:
    """The flags that make a fault in a program harder to use by an attacker: of the target's C library, in
    ``systems.toml``. `toolchains.inspect.checks` looks at what came of them."""
    row = tools.hardening(target.libc)
    return Flags(*(tuple(row.get(name, ())) for name in ("compile", "optimized", "link", "program")))
