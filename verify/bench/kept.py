"""Figures kept for the docs, of quiet machines only."""

from __future__ import annotations

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
