"""When figures are kept for the docs, and the words for this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from core import console


def quiet(load: float, most: float) -> bool:
    """Whether figures are worth keeping; says it if they are not.

    Args:
        load: load average before they were taken.
        most: load average above which they are not.
    """
    if load > most:
        console.note(f"Warning: the machine was busy (load average {load:.2f}): nothing was kept")
    return load <= most


def machine() -> str:
    """This machine's processor, what decides about kernels of x86, and how many there are."""
    words = [line for line in _lines("/proc/cpuinfo") if line.startswith(("model name", "flags"))]
    name = next((line.partition(":")[2].strip() for line in words if line.startswith("model")), platform.machine())
    flags = next((line for line in words if line.startswith("flags")), "")
    level = next((word for flag, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    return ", ".join(filter(None, [name, level, f"{os.cpu_count()} processors"]))


def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines()
