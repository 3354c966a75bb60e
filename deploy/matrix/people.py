"""Texts of a matrix as people read them; failures grouped by their cause."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.console.units import duration, size
from deploy.matrix.model import CellResult, Problem

AWAY = ("unreachable", "authentication", "host-key")
"""Errors of the device, not of the cell."""
HOT_C = 80.0
"""Degrees Celsius from which small boards begin to slow down (a Raspberry Pi's soft limit is 60 to 80)."""
_EXACT = re.compile(r"([\d.]+) ms|([\d,]+) bytes")


def exact(text: str) -> str:
    """A change's figure (``0.007 ms``, ``4,000,000 bytes``) for people; other texts stay."""
    found = _EXACT.fullmatch(text)
    if found is None:
        return text
    return duration(float(found[1])) if found[1] else size(int(found[2].replace(",", ""))) or "0 B"


def disturbed(cell: CellResult) -> tuple[str, ...]:
    """Why the cell's latency may be worse than the device's best: ``busy: load 9.5``, ``hot: 83 °C``.

    A run keeps its threads busy, and what deploys it one more: the load is the median before the rounds.
    """
    loads = [each.load for each in cell.rounds if each.load is not None]
    heat = [each.hottest_c for each in cell.rounds if each.hottest_c is not None]
    found = []
    if loads and (load := statistics.median(loads)) > max(cell.threads, 1) + 1:
        found.append(f"busy: load {load:.1f}")
    if heat and max(heat) >= HOT_C:
        found.append(f"hot: {max(heat):.0f} °C")
    return tuple(found)


@dataclass(frozen=True)
class Failure:
    """Cells that failed for one cause."""

    outcome: str
    problem: Problem | None
    keys: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def what(self) -> str:
        """A sentence."""
        return self.problem.what if self.problem else "The outputs differ from the reference."


def failures(cells: Sequence[CellResult]) -> list[Failure]:
    """Failed cells by cause, the most frequent first: a device that cannot be reached is one failure.

    Two errors have one cause if they are of one kind and their sentences differ only in the cell's own names and in
    numbers.
    """
    found: dict[tuple[str, ...], list[CellResult]] = {}
    for cell in cells:
        if cell.outcome in {"differs", "failed"}:
            found.setdefault(_cause(cell), []).append(cell)
    groups = [
        Failure(
            each[0].outcome,
            each[0].problem,
            tuple(cell.key for cell in each),
            tuple(dict.fromkeys(cell.device for cell in each)),
        )
        for each in found.values()
    ]
    return sorted(groups, key=lambda group: -len(group.keys))


def _cause(cell: CellResult) -> tuple[str, ...]:
    if cell.problem is None:
        return (cell.outcome,)
    if cell.problem.error in AWAY:
        return (cell.problem.error, cell.device)
    what = cell.problem.what
    for name in sorted({cell.program, cell.device, cell.target, cell.model}, key=len, reverse=True):
        what = what.replace(name, "*") if name else what
    return (cell.outcome, cell.problem.error, re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", what))


def engines(cells: Iterable[CellResult]) -> Callable[[CellResult], str]:
    """Names a cell's engine, with the target on devices that have cells of several: ``lean (android-arm64)``."""
    targets: dict[str, set[str]] = {}
    for cell in cells:
        targets.setdefault(cell.device, set()).add(cell.target)

    return lambda cell: f"{cell.engine} ({cell.target})" if len(targets[cell.device]) > 1 else cell.engine
