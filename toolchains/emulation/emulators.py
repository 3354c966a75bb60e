"""QEMU: user mode to run a target's programs here, system mode for virtual devices.

It comes from Debian's packages, also where a QEMU is installed, so that the same emulator runs on every machine.
From trixie on qemu-user is static and models the CPUs of the table rightly; earlier ones compute SME wrongly
and show programs the host's ``/proc/cpuinfo``. A plugin (``instructions.c``) counts the instructions of programs in
virtual devices.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core import console
from core.errors import BuildError, HostError, NotSupportedError
from core.files import keep_text, locked, sha256_bytes, write_atomic
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.compilers import zig
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.debian.tree import own_loader_argv
from toolchains.targets import Target

_USER = "qemu-user"
_SUITE = "trixie"
_NEWER = {"sme2": ("qemu-aarch64", "forky", "max")}
"""CPU models beyond the table's, for proofs: emulator, the suite that has one new enough, and its name there. QEMU 11
is the first to have SME2."""
_KEPT = [f"usr/bin/{program}" for program in ("qemu-aarch64", "qemu-arm", "qemu-i386", "qemu-x86_64")]
"""The package holds forty emulators, half a gigabyte: only those of the table are kept."""
_SYSTEM = "qemu-system-arm"
_PROGRAMS = {"arm64": "qemu-system-aarch64", "armhf": "qemu-system-arm", "armel": "qemu-system-arm"}


def is_native(target: Target) -> bool:
    """Whether this machine runs the target's programs itself."""
    machine = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    return target.os == platform.system().lower() and target.machine == machine


def cpus(target: Target) -> tuple[str, ...]:
    """Every CPU model that the target's programs can be run on: those of the table, and those of newer emulators."""
    return (*target.qemu_cpus, *(name for name, (program, _, _) in _NEWER.items() if program == target.qemu))


def user_argv(target: Target, cpu: str = "", sysroot: Path | None = None) -> list[str]:
    """The command before a target's program that runs it here; empty if it runs natively.

    Args:
        cpu: one of `cpus`; without it the target's ISA floor, or this machine itself.
        sysroot: folder in which the program finds its loader and libraries.

    Raises:
        NotSupportedError: QEMU does not run the target's programs.
        HostError: no QEMU to be had here.
    """
    if is_native(target) and not cpu:
        return []
    if not target.qemu:
        raise NotSupportedError(
            f"Programs for {target.name} cannot be run on this machine.",
            f"proof of running: {target.proof}",
            "./inv devices.add --ssh USER@HOST, for a device of yours",
        )
    _, suite, model = _NEWER.get(cpu, ("", _SUITE, cpu or target.qemu_cpu))
    _require(target.qemu)
    root = debian.tree(suite, host_arch(), [_USER], keep=_KEPT)
    argv = [str(root / "usr/bin" / target.qemu), "-cpu", model]
    return argv if sysroot is None else [*argv, "-L", str(sysroot)]


def describe(target: Target, cpu: str = "") -> str:
    """How `user_argv` runs a program, for people and manifests: ``native``, ``qemu-aarch64 -cpu cortex-a53``."""
    if is_native(target) and not cpu:
        return "native"
    if cpu in _NEWER:
        _, suite, model = _NEWER[cpu]
        return f"{target.qemu} of Debian {suite} -cpu {model}"
    return f"{target.qemu} -cpu {cpu or target.qemu_cpu}"


def _require(program: str) -> None:
    if why := debian.runnable():
        raise HostError(f"There is no {program} on this machine.", why, debian.fix())


def unpacked(target: Target) -> Path | None:
    """The target's emulator out of Debian's packages, if it is in the cache; nothing is fetched."""
    program = debian.tree_root(_SUITE, host_arch(), [_USER], keep=_KEPT) / "usr/bin" / target.qemu
    return program if program.is_file() else None


def system_argv(arch: str, suite: str = "forky") -> list[str]:
    """QEMU for a whole machine; Debian's also counts the instructions of programs.

    Args:
        arch: Debian's name, ``arm64``, ``armhf`` or ``armel``.
        suite: whose QEMU; a newer one models processors that an older one does not know.

    Raises:
        NotSupportedError: no machine of that architecture.
        HostError: no QEMU to be had here.
    """
    if (program := _PROGRAMS.get(arch)) is None:
        raise NotSupportedError(f"There are no virtual devices of architecture {arch}.", hint="./inv devices.list")
    _require(program)
    root = debian.tree(suite, host_arch(), [_SYSTEM], closure=True)
    argv = own_loader_argv(root, f"usr/bin/{program}")
    return [*argv, "-L", str(root / "usr/share/qemu"), *plugin_argv(argv)]


_PLUGIN = Path(__file__).with_name("instructions.c")
_TRIAL = ("-machine", "none", "-nodefaults", "-display", "none", "-monitor", "chardev:script")
"""An empty machine: QEMU loads its plugins, and ends as its monitor's input says."""
_TRIAL_SECONDS = 60.0
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's names for the machines on which zig builds it, and zig's."""


def plugin_argv(qemu: Sequence[str]) -> list[str]:
    """What makes the emulator ``qemu`` count: ``-plugin FILE``; empty if it cannot, with a note the first time.

    QEMU takes plugins of one or a few versions of its interface only. So each QEMU is tried once.

    Raises:
        BuildError: the plugin does not compile. HostError: no compiler to be had.
    """
    machine = _ARCHITECTURES[host_arch()]
    source = _PLUGIN.read_bytes()
    key = sha256_bytes(b"\0".join([source, machine.encode(), zig.pinned_version().encode(), *map(os.fsencode, qemu)]))
    plugin = cache_dir("toolchains") / f"qemu-instructions-{key[:16]}.so"
    refused = plugin.with_suffix(".refused")
    with locked("qemu-instructions"):
        if not plugin.is_file() and not refused.is_file():
            _make_plugin(plugin, refused, machine, qemu)
    return ["-plugin", str(plugin)] if plugin.is_file() else []


def _make_plugin(plugin: Path, refused: Path, machine: str, qemu: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="slipway-plugin-") as folder:
        built = Path(folder) / "plugin.so"
        words: list[str | Path] = [zig.program(), "cc", "-target", f"{machine}-linux-gnu.2.28", "-shared", "-fPIC"]
        words += ["-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", _PLUGIN, "-o", built]
        run(words, env={**os.environ, **zig.caches()}, error=BuildError, what=f"Building {_PLUGIN.name}")
        script = Path(folder) / "script"
        script.write_text("quit\n", encoding="ascii")
        monitor = ["-chardev", f"file,id=script,path={os.devnull},input-path={script}"]
        done = run([*qemu, *_TRIAL, *monitor, "-plugin", built], error=None, timeout=_TRIAL_SECONDS)
        if done.returncode == 0:
            write_atomic(plugin, built.read_bytes())
            return
    why = (done.stderr or done.stdout).strip()
    console.note(f"virtual devices do not count instructions: this QEMU does not take the plugin ({why[-300:]})")
    keep_text(refused, why + "\n")
