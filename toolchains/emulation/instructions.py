"""The plugin with which QEMU's machines count the instructions of programs (``instructions.c``), built when needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core import console
from core.errors import BuildError
from core.files import keep_text, locked, sha256_bytes, write_atomic
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.compilers import zig
from toolchains.debian.sources import host_arch

SOURCE = Path(__file__).with_name("instructions.c")
_TRIAL = ("-machine", "none", "-nodefaults", "-display", "none", "-monitor", "chardev:script")
"""An empty machine: QEMU loads its plugins, and ends as its monitor's input says."""
_TRIAL_SECONDS = 60.0
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's names for the machines on which zig builds it, and zig's."""


def plugin_argv(qemu: Sequence[str]) -> list[str]:
    """What makes ``qemu`` count: ``-plugin FILE``; empty if it cannot, with a note the first time.

    QEMU takes plugins of one or a few versions of its interface only. So each QEMU is tried once.

    Args:
        qemu: the words that start the emulator.

    Raises:
        BuildError: the plugin does not compile. HostError: no compiler to be had.
    """
    machine = _ARCHITECTURES.get(host_arch())
    if machine is None:
        return []
    source = SOURCE.read_bytes()
    key = sha256_bytes(b"\0".join([source, machine.encode(), zig.pinned_version().encode(), *map(os.fsencode, qemu)]))
    plugin = cache_dir("toolchains") / f"qemu-instructions-{key[:16]}.so"
    refused = plugin.with_suffix(".refused")
    if not plugin.is_file() and not refused.is_file():
        with locked("qemu-instructions"):
            if not plugin.is_file() and not refused.is_file():
                _make(plugin, refused, machine, qemu)
    return ["-plugin", str(plugin)] if plugin.is_file() else []


def _make(plugin: Path, refused: Path, machine: str, qemu: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="slipway-plugin-") as folder:
        built = Path(folder) / "plugin.so"
        run(
            [zig.program(), "cc", "-target", f"{machine}-linux-gnu.2.28", "-shared", "-fPIC", "-O2",
             "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", built],
            env={**os.environ, **zig.caches()}, error=BuildError, what="Building the emulator's plugin",
        )  # fmt: skip
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
