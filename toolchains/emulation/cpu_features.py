"""The features of an emulated CPU, as a program sees them that runs on it (``cpuinfo.c``)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from core.errors import BuildError, HostError
from core.files import keep_text, locked, sha256_bytes
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.compilers import zig
from toolchains.emulation.emulators import user_argv
from toolchains.targets import Target

SOURCE = Path(__file__).with_name("cpuinfo.c")
_SECONDS = 120.0

_ZIG = {
    "x86_64": ("x86_64-linux-musl", "baseline"),
    "i686": ("x86-linux-musl", "pentium4"),
    "aarch64": ("aarch64-linux-musl", "baseline"),
    "armv7l": ("arm-linux-musleabihf", "arm1176jzf_s"),
    "armv6l": ("arm-linux-musleabihf", "arm1176jzf_s"),
}
"""By machine: what zig calls a program that needs no library, for the least CPU of any target with that machine."""


def features(target: Target, cpu: str) -> tuple[str, ...]:
    """The features of the model ``cpu``, by their names in ``/proc/cpuinfo``; computed once for each emulator.

    Raises:
        HostError: no emulator or no compiler to be had here, or the program does not run on the model.
        BuildError: the program does not compile.
    """
    argv = user_argv(target, cpu)
    triple, least = _ZIG[target.machine]
    told = [SOURCE.read_bytes(), triple.encode(), zig.pinned_version().encode(), *map(os.fsencode, argv)]
    kept = cache_dir("toolchains") / f"cpuinfo-{sha256_bytes(bytes(1).join(told))[:16]}.txt"
    if not kept.is_file():
        with locked("cpuinfo"), tempfile.TemporaryDirectory(prefix="slipway-cpuinfo-") as folder:
            program = Path(folder) / "cpuinfo"
            run(
                [zig.program(), "cc", "-target", triple, f"-mcpu={least}", "-static", "-Os", "-Wall", "-Wextra",
                 "-Werror", SOURCE, "-o", program],
                env={**os.environ, **zig.caches()}, error=BuildError, what="Building the emulators' cpuinfo",
            )  # fmt: skip
            done = run([*argv, program], error=HostError, timeout=_SECONDS, what=f"Asking QEMU's {cpu} what it is")
            keep_text(kept, done.stdout)
    return tuple(kept.read_text(encoding="utf-8").split())
