"""A virtual device as a platform of comparisons: for processors that no emulator of single programs has."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from core.errors import DeadlineError, HostError
from toolchains.emulation.platforms import Platform
from toolchains.targets import Target

DEVICES = {"avx512": ("linux-x86_64", "android-x86", "android-x86_64")}
"""Virtual devices, and the targets whose programs are compared on them: Android's are static, any Linux runs them."""
SECONDS = 1800.0
"""Seconds that one program may take, its upload included: Bochs computes a hundred times as slowly as this machine."""

_SCRIPT = """#!/bin/sh
cp "$1" run && chmod +x run && shift || exit 1
./run "$@" >&2
code=$?
tar -cf - $(ls result.json out*.npy 2>/dev/null)
exit "$code"
"""
_NAMES = re.compile(r"result\.json|out[0-9]+\.npy")


def cpus(target: Target) -> tuple[str, ...]:
    """The devices on which the target's programs are compared."""
    return tuple(name for name, targets in DEVICES.items() if target.name in targets)


def platform_of(target: Target, name: str) -> Platform:
    """The device as a platform; only `run` runs programs on it.

    Raises:
        HostError: this machine starts no virtual devices.
    """
    from deploy.virtual.spec import get_spec
    from toolchains.debian import packages as debian

    if why := debian.runnable():
        raise HostError(f"There is no virtual device {name} on this machine.", why, debian.fix())
    return Platform(target, name, f"the virtual device {name}: {get_spec(name).title}")


def run(name: str, runner: Path, words: Sequence[str], files: Sequence[Path], folder: Path) -> tuple[int, str]:
    """Run a program on a device; ``result.json`` and the outputs go into ``folder``.

    Args:
        words: the runner's arguments; files stand in them by their names.
        files: what it reads.

    Returns:
        Its exit status, and what it said.

    Raises:
        HostError: it took too long.
    """
    from deploy.devices.inventory import FILE, get_device
    from deploy.run.execute import execute

    script = folder / "compare"
    script.write_text(_SCRIPT, encoding="ascii")
    try:
        done = execute(get_device(name, FILE), script, [runner.name, *words], [runner, *files], timeout=SECONDS)
    except DeadlineError as error:
        raise HostError(error.what, error.cause, error.hint) from subprocess.TimeoutExpired(name, SECONDS)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isfile() and _NAMES.fullmatch(entry.name) else None
            if content is not None:
                (folder / entry.name).write_bytes(content.read())
    return done.code, done.stderr.decode(errors="replace")
