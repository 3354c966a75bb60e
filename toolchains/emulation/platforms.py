"""Execution platforms of a target on this machine: native, QEMU's models of the target's CPUs, Wine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.processes.commands import Done, run
from toolchains.compilers.libstdcxx import library, sysroot
from toolchains.emulation import emulators, wine
from toolchains.targets import Target

NATIVE, WINE = "native", "wine"
_TIMEOUT = 900.0
"""Seconds: an emulated run takes some ten, on a busy machine."""


@dataclass(frozen=True)
class Platform:
    """An execution platform: runs a target's programs."""

    target: Target
    cpu: str
    """One of `cpus`."""
    how: str
    """For people: ``qemu-arm -cpu arm1176``."""
    before: tuple[str, ...] = ()
    """The command before the program."""

    @property
    def emulated(self) -> bool:
        """Whether the CPU is emulated; Wine does not emulate it."""
        return self.cpu not in (NATIVE, WINE)

    def run(self, program: Path, words: Sequence[str], *, timeout: float = _TIMEOUT) -> Done:
        """Run the program with arguments, for ``timeout`` seconds at most; every exit status is accepted.

        Under Wine it sees its own folder and nothing else, as ``Z:\\work``.

        Raises:
            HostError: the time is over, or the emulator is missing.
        """
        if self.cpu == WINE:
            argv, env = wine.argv(self.target, program, words), wine.environment(self.target)
        else:
            argv = [*self.before, os.fspath(program), *words]
            # The caller's environment must not give the program a library, or the emulator an option.
            env = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "QEMU_"))}
        return run(argv, env=env, error=None, timeout=timeout, what=f"{program.name} ({self.how})")


def _runs_here(target: Target) -> bool:
    """Whether this machine's CPU and kernel run the target's programs as they are."""
    here = os.uname()
    same = target.machine == here.machine or (here.machine, target.machine) == ("x86_64", "i686")
    # Android's are static: any Linux runs them.
    return emulators.is_native(target) or (here.sysname == "Linux" and same and target.os in ("linux", "android"))


def cpus(target: Target) -> tuple[str, ...]:
    """The names of the target's platforms here: ``native``, CPU models, ``wine``; empty if nothing can run it."""
    if target.os == "windows":
        return (WINE,) if target.machine in ("x86_64", "i686") else ()
    return (*((NATIVE,) if _runs_here(target) else ()), *emulators.cpus(target))


def platform_for(target: Target, cpu: str) -> Platform:
    """The platform of ``cpu``, one of `cpus`.

    Raises:
        HostError, NotSupportedError: it is not available on this machine.
    """
    if cpu == WINE:
        wine.prefix(target)
        return Platform(target, cpu, "Wine, on this machine's CPU")
    if cpu != NATIVE:
        before = emulators.user_argv(target, cpu, sysroot(target) if target.libc == "glibc" else None)
        return Platform(target, cpu, emulators.describe(target, cpu), tuple(before))
    if target.libc != "glibc" or emulators.is_native(target):
        return Platform(target, cpu, "this machine's CPU")
    # 32-bit programs on a 64-bit system that may have no loader for them.
    loader = library(sysroot(target), target, "ld-linux.so.2")
    return Platform(target, cpu, "this machine's CPU", (os.fspath(loader), "--library-path", os.fspath(loader.parent)))
