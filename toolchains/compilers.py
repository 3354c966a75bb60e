"""Compiler families behind one surface.

A family is a module with two functions: ``usable(target) -> str`` (empty, or why not and the command that
mends it; cheap, no network) and ``ensure(target) -> Compilers`` (fetches and prepares what is missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from core.errors import ConfigError, HostError
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


class Family(Protocol):
    """What a compiler family's module offers."""

    def usable(self, target: Target) -> str:
        """Why it cannot build for ``target`` here, with the command that mends it; empty when it can."""

    def ensure(self, target: Target) -> Compilers:
        """The compilers, fetched and prepared where needed."""


NOT_HERE: Mapping[str, str] = {
    "ndk": "Slipway does not drive Android's NDK yet; it needs the lean engine first (./inv targets)",
    "xcode": "Slipway does not drive Xcode yet; it needs a Mac and the lean engine first (./inv targets)",
}
"""Families that the table of targets names and that no module implements, with the reason."""


def family(name: str) -> Family:
    """The module of the family ``name``.

    Raises:
        ConfigError: no such family.
        HostError: the family is known and cannot be used; the message says why.
    """
    if name in NOT_HERE:
        raise HostError(f"The toolchain {name} cannot be used.", NOT_HERE[name], "./inv doctor")
    if name == "zig":
        from toolchains import zig

        return cast("Family", zig)
    if name == "gnu":
        from toolchains import gnu

        return cast("Family", gnu)
    raise ConfigError(f"There is no toolchain {name!r}.", "toolchains are zig and gnu", "./inv targets")
