"""Operators of one run or of two: as a table for people, as TSV for spreadsheets, as JSON for machines."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core import console
from core.plain import plain
from models.inspection.against import Pair
from models.inspection.origins import Origin
from models.inspection.rows import Row, Times

if TYPE_CHECKING:
    from models.inspection.values import Gap

_FIGURES = ("min", "p10", "p50", "p90", "max")
_MODULES = 3
_PLACE = ("module", "line", "kernel")


def _figures(times: Times | None, factor: float, digits: int) -> list[str]:
    return [f"{getattr(times, name) * factor:.{digits}f}" if times else "" for name in _FIGURES]


def _place(row: Row) -> list[str]:
    origin = row.origin or Origin()
    module = origin.module + ("" if origin.sure else " ?")
    return [module.strip(), origin.source, row.kernel.name if row.kernel else ""]


def _provider(row: Row) -> str:
    return row.provider.removesuffix("Backend")


def _narrow(row: Row) -> list[str]:
    """For a table: some of a delegate's modules, and the file's name without its folders."""
    module, source, kernel = _place(row)
    several = module.split(", ")
    if len(several) > _MODULES:
        module = f"{', '.join(several[:_MODULES])} and {len(several) - _MODULES} more"
    return [module, source.rpartition("/")[2], kernel]


def table(rows: Sequence[Row], title: str, caption: str, *, times: bool) -> None:
    """Print rows; times in microseconds."""
    columns = ["operator", "in", *_PLACE, "count"]
    if times:
        columns += [*_FIGURES, "%", "warm-up"]
    console.table(
        title,
        columns,
        [
            [row.name, _provider(row), *_narrow(row), str(row.count)]
            + (
                [
                    *_figures(row.times, 1e3, 1),
                    "" if row.share is None else f"{100 * row.share:.1f}",
                    f"{row.warmup.p50 * 1e3:.1f}" if row.warmup else "",
                ]
                if times
                else []
            )
            for row in rows
        ],
        caption,
        optional=("p10", "min", "max", "warm-up", "in", "count", "kernel", "p90", "module"),
    )


def tsv(rows: Sequence[Row]) -> None:
    """Print rows with tabs between; times in milliseconds, a share of 1 is all of the time."""
    out = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    figures = [f"{name}_ms" for name in (*_FIGURES, "total")]
    out.writerow(
        ["operator", "in", "delegated", *_PLACE, "library", "aten", "instruction", "count", *figures, "share"]
        + [f"warmup_{name}" for name in ("count", *figures)]
    )
    for row in rows:
        origin = row.origin or Origin()
        out.writerow(
            plain(str(cell))
            for cell in [
                row.name,
                _provider(row),
                int(row.delegated),
                origin.module,
                origin.source,
                row.kernel.name if row.kernel else "",
                row.kernel.library if row.kernel else "",
                ",".join(origin.operators),
                row.instruction,
                row.count,
                *_numbers(row.times),
                "" if row.share is None else f"{row.share:.6f}",
                *([row.warmup.count, *_numbers(row.warmup)] if row.warmup else [""] * (len(figures) + 1)),
            ]
        )


def _numbers(times: Times | None) -> list[str]:
    return [f"{getattr(times, name):.6f}" if times else "" for name in (*_FIGURES, "total")]


def pairs(found: Sequence[Pair], names: tuple[str, str], caption: str, *, times: bool) -> None:
    """Print two runs side by side; medians in microseconds."""
    columns = ["operator", "operator of the other", "module", "line", "kernel", "kernel of the other"]
    rows = []
    for pair in found:
        row = pair.one or pair.other
        if row is None:
            continue
        cells = [pair.one.name if pair.one else "–", _other(pair), *_narrow(row)[:2], _kernel(pair.one)]
        cells.append(_kernel(pair.other))
        if times:
            cells += [_median(pair.one), _median(pair.other), "" if pair.ratio is None else f"{pair.ratio:.2f}"]
        rows.append(cells)
    console.table(
        f"{names[0]} against {names[1]}",
        columns + (["p50", "p50 of the other", "ratio"] if times else []),
        rows,
        caption,
        optional=("kernel of the other", "kernel", "module", "operator of the other"),
    )


def _other(pair: Pair) -> str:
    if pair.other is None:
        return "–"
    return "same" if pair.one and pair.one.name == pair.other.name else pair.other.name


def _kernel(row: Row | None) -> str:
    return row.kernel.name if row and row.kernel else ""


def _median(row: Row | None) -> str:
    return f"{row.times.p50 * 1e3:.1f}" if row and row.times else ""


def pairs_tsv(found: Sequence[Pair]) -> None:
    """Print two runs with tabs between; medians in milliseconds."""
    out = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    out.writerow(
        ["operator", "other", "module", "line", "kernel", "other_kernel", "p50_ms", "other_p50_ms", "ratio", "by"]
    )
    for pair in found:
        row = pair.one or pair.other
        if row is not None:
            medians = [f"{one.times.p50:.6f}" if one and one.times else "" for one in (pair.one, pair.other)]
            names = [one.name if one else "" for one in (pair.one, pair.other)]
            ratio = "" if pair.ratio is None else f"{pair.ratio:.4f}"
            cells = [*names, *_place(row)[:2], _kernel(pair.one), _kernel(pair.other), *medians, ratio, pair.by]
            out.writerow(plain(cell) for cell in cells)


def document(rows: Sequence[Row], facts: dict[str, Any]) -> None:
    """Print rows as JSON."""
    console.print_json({**facts, "rows": [row.to_json() for row in rows]})


def pairs_document(found: Sequence[Pair], facts: dict[str, Any]) -> None:
    """Print two runs as JSON."""
    console.print_json({**facts, "rows": [pair.to_json() for pair in found]})


def gaps(found: Sequence[Gap], name: str, count: int) -> None:
    """Print how far operators are from PyTorch."""
    console.table(
        f"{name}: operators against PyTorch",
        ["operator", "module", "line", "type", "shape", "error", "largest difference", "allowed", "verdict"],
        [
            [
                gap.name,
                gap.origin.module,
                gap.origin.source.rpartition("/")[2],
                gap.dtype,
                "×".join(map(str, gap.shape)) or "scalar",
                f"{gap.error:.3g}",
                f"{gap.max_abs:.3g}",
                f"{gap.limit:.3g}",
                "agrees" if gap.ok else "DIFFERS",
            ]
            for gap in found
        ],
        f"{len(found)} of {count} operators; error: root mean square of the differences, by that of PyTorch's values",
        optional=("shape", "type", "largest difference", "module"),
    )


def gaps_tsv(found: Sequence[Gap]) -> None:
    """Print the same with tabs between."""
    out = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    out.writerow(["operator", "module", "line", "type", "shape", "error", "max_abs", "limit", "ok"])
    for gap in found:
        shape = "x".join(map(str, gap.shape))
        cells = [gap.name, gap.origin.module, gap.origin.source, gap.dtype, shape, gap.error, gap.max_abs, gap.limit]
        out.writerow(plain(str(cell)) for cell in [*cells, int(gap.ok)])


def gaps_document(found: Sequence[Gap], facts: dict[str, Any]) -> None:
    """Print the same as JSON."""
    console.print_json({**facts, "operators": [gap.to_json() for gap in found]})
