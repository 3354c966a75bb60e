"""Operators of one run or of two: as a table for people, as TSV for spreadsheets, as JSON for machines."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from core import console
from core.plain import plain
from models.inspection.against import Pair
from models.inspection.origins import Origin
from models.inspection.rows import Row, Times

if TYPE_CHECKING:
    from models.inspection.values import Gap

_FIGURES = ("min", "p10", "p50", "p90", "max")
_MILLISECONDS = [f"{name}_ms" for name in (*_FIGURES, "total")]
_MODULES = 3
_PLACE = ("module", "line", "kernel")


def _show(how: str, document: dict[str, Any], tsv: Iterable[Iterable[Any]], table: Callable[[], None]) -> None:
    """Print one of the three.

    Args:
        how: ``json``, ``tsv``, or empty for people.
        tsv: lines of cells, the first one with their names.
    """
    if how == "json":
        console.print_json(document)
    elif how == "tsv":
        out = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        out.writerows([plain(str(cell)) for cell in line] for line in tsv)
    else:
        table()


def _figures(times: Times | None, names: Sequence[str], factor: float, digits: int) -> list[str]:
    return [f"{getattr(times, name) * factor:.{digits}f}" if times else "" for name in names]


def _place(row: Row) -> list[str]:
    origin = row.origin or Origin()
    module = origin.module + ("" if origin.sure else " ?")
    return [module.strip(), origin.source, _kernel(row)]


def _provider(row: Row) -> str:
    return row.provider.removesuffix("Backend")


def _narrow(row: Row) -> list[str]:
    """For a table: some of a delegate's modules, and the file's name without its folders."""
    module, source, kernel = _place(row)
    several = module.split(", ")
    if len(several) > _MODULES:
        module = f"{', '.join(several[:_MODULES])} and {len(several) - _MODULES} more"
    return [module, source.rpartition("/")[2], kernel]


def _for_people(row: Row, times: bool) -> list[str]:
    cells = [row.name, _provider(row), *_narrow(row), str(row.count)]
    if times:
        cells += [*_figures(row.times, _FIGURES, 1e3, 1), "" if row.share is None else f"{100 * row.share:.1f}"]
        cells += _figures(row.warmup, ["p50"], 1e3, 1)
    return cells


def _for_spreadsheets(row: Row) -> list[Any]:
    origin, names = row.origin or Origin(), (*_FIGURES, "total")
    return [
        row.name, _provider(row), int(row.delegated), origin.module, origin.source, _kernel(row),
        row.kernel.library if row.kernel else "", ",".join(origin.operators), row.instruction, row.count,
        *_figures(row.times, names, 1, 6), "" if row.share is None else f"{row.share:.6f}",
        row.warmup.count if row.warmup else "", *_figures(row.warmup, names, 1, 6),
    ]  # fmt: skip


def rows(how: str, found: Sequence[Row], title: str, caption: str, facts: dict[str, Any], *, times: bool) -> None:
    """Print a run's operators; times in microseconds for people, else in milliseconds; a share of 1 is all of it."""
    head = ["operator", "in", "delegated", *_PLACE, "library", "aten", "instruction", "count", *_MILLISECONDS, "share"]
    head += [f"warmup_{name}" for name in ("count", *_MILLISECONDS)]
    _show(
        how,
        {**facts, "rows": [row.to_json() for row in found]},
        [head, *map(_for_spreadsheets, found)],
        lambda: console.table(
            title,
            ["operator", "in", *_PLACE, "count", *([*_FIGURES, "%", "warm-up"] if times else [])],
            [_for_people(row, times) for row in found],
            caption,
            optional=("p10", "min", "max", "warm-up", "in", "count", "kernel", "p90", "module"),
        ),
    )


def pairs(
    how: str, found: Sequence[Pair], names: tuple[str, str], caption: str, facts: dict[str, Any], *, times: bool
) -> None:
    """Print two runs side by side; medians in microseconds for people, else in milliseconds."""
    lines: list[list[str]] = [
        ["operator", "other", "module", "line", "kernel", "other_kernel", "p50_ms", "other_p50_ms", "ratio", "by"]
    ]
    cells = []
    for pair in found:
        row = pair.one or pair.other
        if row is None:
            continue
        both = (pair.one, pair.other)
        kernels, medians = [_kernel(one) for one in both], [one.times if one else None for one in both]
        given = [one.name if one else "" for one in both]
        exact = [each for one in medians for each in _figures(one, ["p50"], 1, 6)]
        ratio = "" if pair.ratio is None else f"{pair.ratio:.4f}"
        lines.append([*given, *_place(row)[:2], *kernels, *exact, ratio, pair.by])
        cells.append([given[0] or "–", _other(pair), *_narrow(row)[:2], *kernels])
        if times:
            cells[-1] += [each for one in medians for each in _figures(one, ["p50"], 1e3, 1)]
            cells[-1].append("" if pair.ratio is None else f"{pair.ratio:.2f}")
    columns = ["operator", "operator of the other", "module", "line", "kernel", "kernel of the other"]
    _show(
        how,
        {**facts, "rows": [pair.to_json() for pair in found]},
        lines,
        lambda: console.table(
            f"{names[0]} against {names[1]}",
            columns + (["p50", "p50 of the other", "ratio"] if times else []),
            cells,
            caption,
            optional=("kernel of the other", "kernel", "module", "operator of the other"),
        ),
    )


def _other(pair: Pair) -> str:
    if pair.other is None:
        return "–"
    return "same" if pair.one and pair.one.name == pair.other.name else pair.other.name


def _kernel(row: Row | None) -> str:
    return row.kernel.name if row and row.kernel else ""


def gaps(how: str, found: Sequence[Gap], name: str, count: int, facts: dict[str, Any]) -> None:
    """Print how far operators are from PyTorch."""

    def cells(gap: Gap) -> list[str]:
        figures = [f"{figure:.3g}" for figure in (gap.error, gap.max_abs, gap.limit)]
        shape, line = "×".join(map(str, gap.shape)) or "scalar", gap.origin.source.rpartition("/")[2]
        return [gap.name, gap.origin.module, line, gap.dtype, shape, *figures, "agrees" if gap.ok else "DIFFERS"]

    def line(gap: Gap) -> list[Any]:
        shape = "x".join(map(str, gap.shape))
        numbers = [gap.error, gap.max_abs, gap.limit, int(gap.ok)]
        return [gap.name, gap.origin.module, gap.origin.source, gap.dtype, shape, *numbers]

    _show(
        how,
        {**facts, "operators": [gap.to_json() for gap in found]},
        [["operator", "module", "line", "type", "shape", "error", "max_abs", "limit", "ok"], *map(line, found)],
        lambda: console.table(
            f"{name}: operators against PyTorch",
            ["operator", "module", "line", "type", "shape", "error", "largest difference", "allowed", "verdict"],
            [cells(gap) for gap in found],
            f"{len(found)} of {count} operators; error: root mean square of the differences, by that of PyTorch's "
            "values",
            optional=("shape", "type", "largest difference", "module"),
        ),
    )
