"""Figures kept for the docs, of quiet machines only, and the words for this machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core import console
from core.files import write_json
from core.paths import ROOT


def keep(file: Path, figures: Any, load: float, most: float) -> None:
    """Write ``figures`` to ``file``, or say why not.

    Args:
        load: load average before they were taken.
        most: load average above which they are not worth keeping.
    """
    if load > most:
        console.note(f"Warning: the machine was busy (load average {load:.2f}): nothing was kept")
        return
    write_json(file, figures)
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    console.note(f"kept in {name}; python -m verify.docs writes the docs")


def table(
    file: Path,
    headings: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
    about: Callable[[dict[str, Any]], str],
) -> str:
    """The figures kept in ``file`` as a table for the docs: ``cells`` of each row, and ``about`` them all below."""
    if not file.is_file():
        return "No figures are kept yet: the command above prints them.\n"
    kept = json.loads(file.read_text(encoding="utf-8"))
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(cells(row))} |" for row in kept["rows"]]
    return "\n".join(lines) + f"\n\n{about(kept)}\n"


def machine() -> str:
    """This machine's processor, what decides about kernels of x86, and how many there are."""
    words = [line for line in _lines("/proc/cpuinfo") if line.startswith(("model name", "flags"))]
    name = next((line.partition(":")[2].strip() for line in words if line.startswith("model")), platform.machine())
    flags = next((line for line in words if line.startswith("flags")), "")
    level = next((word for flag, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    return ", ".join(filter(None, [name, level, f"{os.cpu_count()} processors"]))


def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines()
