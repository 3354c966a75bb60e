"""Operators of one run or of two: as a table for people, as JSON for machines."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from core import console
from models.inspection.dump import Execution, parts
from models.inspection.origins import Origin

if TYPE_CHECKING:
    from models.inspection.values import Gap


@dataclass(frozen=True)
class Times:
    """Milliseconds over several executions. A percentile is of the nearest rank: always a measured time."""

    count: int
    min: float
    p10: float
    p50: float
    p90: float
    max: float
    total: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Times | None:
        """The figures of at least one measured time."""
        if not nanoseconds:
            return None
        ordered = sorted(each / 1e6 for each in nanoseconds)

        def percentile(share: float) -> float:
            return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        return cls(
            len(ordered), ordered[0], percentile(0.1), percentile(0.5), percentile(0.9), ordered[-1], sum(ordered)
        )


@dataclass(frozen=True)
class Kernel:
    """The function that computes a layer, as the runner reports it."""

    name: str
    library: str
    feature: str


@dataclass(frozen=True)
class Row:
    """An operator at one place of the program."""

    name: str
    """As in a profile: ``Fully Connected (NC, F32) GEMM #1 @3``; the number behind ``@`` is the instruction."""
    operator: str
    provider: str
    """``XnnpackBackend``, ``portable``, or ``runtime`` for the time around operators."""
    instruction: int
    count: int
    """Timed calls of it."""
    times: Times | None
    """``None`` if it ran only in warm-up executions, and on an emulated device."""
    warmup: Times | None
    share: float | None
    """Of the time of all timed executions, 0 to 1."""
    origin: Origin | None
    kernel: Kernel | None

    @property
    def delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.provider not in ("portable", "runtime")

    @property
    def words(self) -> tuple[str, ...]:
        """What a filter looks at."""
        origin = self.origin or Origin()
        kernel = (self.kernel.name, self.kernel.library) if self.kernel else ()
        inside = "delegated" if self.delegated else "undelegated"
        return (self.name, self.provider, inside, *origin.operators, origin.module, origin.source, *kernel)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; times in milliseconds."""
        return {**asdict(self), "delegated": self.delegated}


def rows(
    executions: Sequence[Execution],
    timed: int,
    origins: Mapping[tuple[int, str], Origin],
    kernels: Mapping[str, Kernel],
    *,
    emulated: bool = False,
) -> tuple[Row, ...]:
    """One row for each operator, in the order in which they first ran.

    Args:
        timed: how many executions at the end are timed; those before them are warm-up.
        kernels: by the name of the row.
    """
    first = len(executions) - timed
    spent: dict[str, tuple[list[int], list[int]]] = {}
    known: dict[str, Row] = {}
    for number, execution in enumerate(executions):
        for part in parts(execution):
            spent.setdefault(part.row, ([], []))[number >= first].append(part.own)
            if part.row not in known:
                instruction = part.event.instruction
                name = part.event.name if part.event.delegated or part.provider == "runtime" else part.operator
                known[part.row] = Row(
                    part.row,
                    part.operator,
                    part.provider,
                    instruction,
                    0,
                    None,
                    None,
                    None,
                    None if part.row == part.event.name else origins.get((instruction, name)),
                    kernels.get(part.row),
                )
    whole = sum(sum(warm) for _, warm in spent.values())
    found = []
    for name, row in known.items():
        cold, warm = spent[name]
        if emulated:
            found.append(replace(row, count=len(warm)))
        else:
            share = sum(warm) / whole if whole else None
            found.append(replace(row, count=len(warm), times=Times.of(warm), warmup=Times.of(cold), share=share))
    return tuple(found)


def matches(row: Row, patterns: Sequence[str]) -> bool:
    """Whether a word of the row contains one of the patterns, or matches one with ``*``; upper case is lower case."""
    return contains(row.words, patterns)


def contains(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """The same for any words."""
    words = [word.lower() for word in texts]
    return not patterns or any(
        fnmatch.fnmatchcase(word, pattern.lower() if "*" in pattern else f"*{_plain(pattern.lower())}*")
        for pattern in patterns
        for word in words
    )


def _plain(text: str) -> str:
    """``text`` for fnmatch, meaning itself."""
    return "".join(f"[{each}]" if each in "[?" else each for each in text)


_FIGURES = ("min", "p10", "p50", "p90", "max")
_MODULES = 3
_PLACE = ("module", "line", "kernel")


def _figures(times: Times | None, names: Sequence[str]) -> list[str]:
    """In microseconds."""
    return [f"{getattr(times, name) * 1e3:.1f}" if times else "" for name in names]


def _place(row: Row) -> list[str]:
    origin = row.origin or Origin()
    module = origin.module + ("" if origin.sure else " ?")
    return [module.strip(), origin.source, row.kernel.name if row.kernel else ""]


def _narrow(row: Row) -> list[str]:
    """For a table: some of a delegate's modules, and the file's name without its folders."""
    module, source, kernel = _place(row)
    several = module.split(", ")
    if len(several) > _MODULES:
        module = f"{', '.join(several[:_MODULES])} and {len(several) - _MODULES} more"
    return [module, source.rpartition("/")[2], kernel]


def _cells(row: Row, times: bool) -> list[str]:
    cells = [row.name, row.provider.removesuffix("Backend"), *_narrow(row), str(row.count)]
    if times:
        cells += [*_figures(row.times, _FIGURES), "" if row.share is None else f"{100 * row.share:.1f}"]
        cells += _figures(row.warmup, ["p50"])
    return cells


def show(as_json: bool, found: Sequence[Row], title: str, caption: str, facts: dict[str, Any], *, times: bool) -> None:
    """Print a run's operators; times in microseconds for people, else in milliseconds; a share of 1 is all of it."""
    if as_json:
        console.print_json({**facts, "rows": [row.to_json() for row in found]})
        return
    console.table(
        title,
        ["operator", "in", *_PLACE, "count", *([*_FIGURES, "%", "warm-up"] if times else [])],
        [_cells(row, times) for row in found],
        caption,
        optional=("p10", "min", "max", "warm-up", "in", "count", "kernel", "p90", "module"),
    )


def gaps(as_json: bool, found: Sequence[Gap], name: str, count: int, facts: dict[str, Any]) -> None:
    """Print how far operators are from PyTorch."""
    if as_json:
        console.print_json({**facts, "operators": [gap.to_json() for gap in found]})
        return

    def cells(gap: Gap) -> list[str]:
        figures = [f"{figure:.3g}" for figure in (gap.error, gap.max_abs, gap.limit)]
        shape, line = "×".join(map(str, gap.shape)) or "scalar", gap.origin.source.rpartition("/")[2]
        return [gap.name, gap.origin.module, line, gap.dtype, shape, *figures, "agrees" if gap.ok else "DIFFERS"]

    console.table(
        f"{name}: operators against PyTorch",
        ["operator", "module", "line", "type", "shape", "error", "largest difference", "allowed", "verdict"],
        [cells(gap) for gap in found],
        f"{len(found)} of {count} operators; error: root mean square of the differences, by that of PyTorch's values",
        optional=("shape", "type", "largest difference", "module"),
    )
