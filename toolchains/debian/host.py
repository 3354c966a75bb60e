"""Debian's name of this machine's architecture: programs of the cache are fetched for it."""

from __future__ import annotations

import platform

from core.errors import HostError

_HOST_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}


def host_arch() -> str:
    """Debian's name of this machine's architecture, whose programs are fetched.

    Raises:
        HostError: a machine that Debian's emulators are not built for, or not Linux.
    """
    machine = platform.machine().lower()
    if platform.system() != "Linux" or machine not in _HOST_ARCHS:
        raise HostError(
            f"There is no emulator for {platform.system()} on {machine}.",
            "Slipway's emulators are Debian's, for Linux on x86_64 and aarch64",
            "run Slipway in a Debian container",
        )
    return _HOST_ARCHS[machine]
