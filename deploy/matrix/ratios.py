"""What an engine or a scheme gains: its latency and size in parts of another's, on the same device with the same model.

Only real devices have latency. A cell whose device throttled gives no ratio of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.console.units import counted, three
from core.formats.program import ENGINES
from deploy.matrix.model import CellResult
from deploy.matrix.people import disturbed, engines

_FIRST = "fp32"
"""The scheme that others are compared with."""


@dataclass(frozen=True)
class Ratio:
    """One cell against another. Ratios below 1: the first takes less."""

    device: str
    model: str
    """With the scheme or the engine that both have."""
    name: str
    other: str
    time: float | None
    size: float | None
    notes: tuple[str, ...] = ()
    """Why the ratio of times is doubtful."""


def of_engines(cells: Sequence[CellResult]) -> list[Ratio]:
    """Each engine against the first of `core.formats.program.ENGINES` that ran the same model in the same scheme."""
    order = {name: index for index, name in enumerate(ENGINES)}
    pairs = _pairs(
        cells,
        lambda cell: (cell.device, cell.target, cell.model, cell.scheme),
        lambda cell: cell.engine,
        lambda cell: order.get(cell.engine, len(order)),
        lambda cell: f"{cell.model} {cell.scheme}",
    )
    return [each for each in pairs if each.time]  # a program is as large on every engine


def of_schemes(cells: Sequence[CellResult]) -> list[Ratio]:
    """Each scheme against fp32 of the same model on the same engine."""
    engine = engines(cells)
    with_first = {_model(cell) for cell in cells if cell.scheme == _FIRST}
    return list(
        _pairs(
            [cell for cell in cells if _model(cell) in with_first],
            _model,
            lambda cell: cell.scheme,
            lambda cell: cell.scheme != _FIRST,
            lambda cell: f"{cell.model} on {engine(cell)}",
        )
    )


def summary(ratios: Sequence[Ratio]) -> list[str]:
    """A sentence for each pair of names: the geometric mean of the times, and the range."""
    found: dict[tuple[str, str], list[float]] = {}
    for each in ratios:
        if each.time:
            found.setdefault((each.name, each.other), []).append(each.time)
    return [
        f"{name} takes {three(math.exp(sum(map(math.log, times)) / len(times)))} of {other}'s time"
        + (
            f" over {counted(len(times), 'pair')} (geometric mean; from {three(min(times))} to {three(max(times))})"
            if len(times) > 1
            else ""
        )
        + "."
        for (name, other), times in found.items()
    ]


def _model(cell: CellResult) -> tuple[str, ...]:
    return (cell.device, cell.target, cell.engine, cell.model)


def _pairs(
    cells: Iterable[CellResult],
    key: Callable[[CellResult], tuple[str, ...]],
    name: Callable[[CellResult], str],
    order: Callable[[CellResult], int],
    label: Callable[[CellResult], str],
) -> Iterable[Ratio]:
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for cell in cells:
        if cell.outcome == "passed":
            groups.setdefault(key(cell), []).append(cell)
    for group in groups.values():
        first, *rest = sorted(group, key=order)
        for cell in rest:
            if name(cell) != name(first):
                yield _ratio(cell, first, name, label)


def _ratio(
    cell: CellResult, first: CellResult, name: Callable[[CellResult], str], label: Callable[[CellResult], str]
) -> Ratio:
    time = size = None
    if cell.latency and first.latency and first.latency.p50 > 0 and not (cell.throttled or first.throttled):
        time = cell.latency.p50 / first.latency.p50
    if cell.program_bytes and first.program_bytes:
        size = cell.program_bytes / first.program_bytes
    notes = tuple(dict.fromkeys((*disturbed(cell), *disturbed(first)))) if time else ()
    return Ratio(cell.device, label(cell), name(cell), name(first), time, size, notes)
