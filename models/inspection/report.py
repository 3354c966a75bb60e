"""Operators of one run or of two: as a table for people, as JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core import console
from models.inspection.against import Pair
from models.inspection.origins import Origin
from models.inspection.rows import Row, Times

if TYPE_CHECKING:
    from models.inspection.values import Gap

_FIGURES = ("min", "p10", "p50", "p90", "max")
_MODULES = 3
_PLACE = ("module", "line", "kernel")


def _figures(times: Times | None, names: Sequence[str]) -> list[str]:
    """In microseconds."""
    return [f"{getattr(times, name) * 1e3:.1f}" if times else "" for name in names]


def _place(row: Row) -> list[str]:
    origin = row.origin or Origin()
    module = origin.module + ("" if origin.sure else " ?")
    return [module.strip(), origin.source, _kernel(row)]


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


def rows(as_json: bool, found: Sequence[Row], title: str, caption: str, facts: dict[str, Any], *, times: bool) -> None:
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


def pairs(
    as_json: bool, found: Sequence[Pair], names: tuple[str, str], caption: str, facts: dict[str, Any], *, times: bool
) -> None:
    """Print two runs side by side; medians in microseconds for people, else in milliseconds."""
    if as_json:
        console.print_json({**facts, "rows": [pair.to_json() for pair in found]})
        return
    cells = []
    for pair in found:
        row = pair.one or pair.other
        if row is None:
            continue
        both = (pair.one, pair.other)
        cells.append([pair.one.name if pair.one else "–", _other(pair), *_narrow(row)[:2], *map(_kernel, both)])
        if times:
            cells[-1] += [each for one in both for each in _figures(one.times if one else None, ["p50"])]
            cells[-1].append("" if pair.ratio is None else f"{pair.ratio:.2f}")
    columns = ["operator", "operator of the other", "module", "line", "kernel", "kernel of the other"]
    console.table(
        f"{names[0]} against {names[1]}",
        columns + (["p50", "p50 of the other", "ratio"] if times else []),
        cells,
        caption,
        optional=("kernel of the other", "kernel", "module", "operator of the other"),
    )


def _other(pair: Pair) -> str:
    if pair.other is None:
        return "–"
    return "same" if pair.one and pair.one.name == pair.other.name else pair.other.name


def _kernel(row: Row | None) -> str:
    return row.kernel.name if row and row.kernel else ""


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
