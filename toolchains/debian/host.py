"""Debian's name of this machine's architecture: programs of the cache are fetched for it."""

from __future__ import annotations

import platform

from core.errors import HostError

_HOST_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}


def arch_of(system: str, machine: str) -> str:
    """Debian's name of a machine's architecture; empty where its programs do not run."""
    return _HOST_ARCHS.get(machine.lower(), "") if system == "Linux" else ""


def known_arch() -> str:
    """`arch_of` this machine."""
    return arch_of(platform.system(), platform.machine())


def host_arch() -> str:
    """Debian's name of this machine's architecture, whose programs are fetched.

    Raises:
        HostError: a machine that Debian's emulators are not built for, or not Linux.
    """
    arch = known_arch()
    if not arch:
        raise HostError(
            f"Debian's programs do not run on {platform.system()} on {platform.machine().lower()}.",
            "emulators, virtual devices and Wine come from Debian, for Linux on x86_64 and aarch64",
            "run Slipway on Linux, in a container or a virtual machine (docs/build.md)",
        )
    return arch
