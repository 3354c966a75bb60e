"""Operators of a layer both ways: matched, their times side by side, and the tables of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from deploy.run.runner import ProfileRow
from models.inspection.against import pair
from models.inspection.rows import Row, Times
from verify.layers.model import Lab, Matched, Operator
from verify.tables import table_of

COLUMNS = (
    *("device", "layer", "type", "operator", "calls", "p10 ms", "p50 ms", "p90 ms"),
    *("other operator", "other calls", "other p10", "other p50", "other p90", "ratio"),
)
_FIGURES = ("name", "count", "p10", "p50", "p90")
_RUNTIME = "runtime"


def matched(first: Sequence[ProfileRow], second: Sequence[ProfileRow]) -> tuple[Matched, ...]:
    """The operators of two profiles of one program, those of the first in their order."""
    found = []
    for each in pair(_rows(first), _rows(second), same_program=True):
        one, other = _operator(each.one), _operator(each.other)
        ratio = one.p50 / other.p50 if one and other and other.p50 else None
        found.append(Matched(first=one, second=other, by=each.by, ratio=ratio))
    return tuple(found)


def _rows(profile: Sequence[ProfileRow]) -> list[Row]:
    """What computes, as rows of an inspection; nothing of a runner that reports no percentiles."""
    found = []
    for row in profile:
        if row.provider == _RUNTIME or row.p10_ms is None or row.p50_ms is None or row.p90_ms is None:
            continue
        times = Times(row.count, row.p10_ms, row.p10_ms, row.p50_ms, row.p90_ms, row.p90_ms, row.total_ms)
        at = re.search(r"@([0-9]+)$", row.name)
        instruction = int(at[1]) if at else -1
        found.append(Row(row.name, row.operator, row.provider, instruction, row.count, times, None, None, None, None))
    return found


def _operator(row: Row | None) -> Operator | None:
    if row is None or row.times is None:
        return None
    return Operator(name=row.name, count=row.count, p10=row.times.p10, p50=row.times.p50, p90=row.times.p90)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def operator_row(one: Matched) -> list[str]:
    """An operator both ways: names, calls, percentiles in milliseconds, and the ratio of p50."""
    found: list[str] = []
    for each in (one.first, one.second):
        times = map(_number, (each.p10, each.p50, each.p90)) if each else [""] * 3
        found += [each.name if each else "–", str(each.count) if each else "", *times]
    if one.first and one.second and one.first.name == one.second.name:
        found[5] = "the same"
    return [*found, _number(one.ratio)]


def separated(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Tab-separated values: numbers with all their digits, nothing for ``None``."""
    lines = (["" if value is None else str(value).replace("\t", " ") for value in row] for row in (heads, *rows))
    return "".join("\t".join(line) + "\n" for line in lines)


def tsv(found: Lab) -> str:
    """A line for each operator of each layer."""
    heads = [f"{which}_{name}{'_ms' * (name[0] == 'p')}" for which in ("first", "second") for name in _FIGURES]
    rows = (
        [
            *(cell.device, cell.layer, cell.type or cell.scheme),
            *(getattr(each, name) if each else None for each in (one.first, one.second) for name in _FIGURES),
            *(one.ratio, one.by),
        ]
        for cell in found.cells
        for one in cell.operators
    )
    return separated(["device", "layer", "type", *heads, "ratio", "by"], rows)


def markdown(found: Lab) -> str:
    """A table; nothing without times."""
    rows = [
        [cell.device, cell.layer, cell.type or cell.scheme, *operator_row(one)]
        for cell in found.cells
        for one in cell.operators
    ]
    return f"\n## Operators\n\n{table_of(COLUMNS, rows)}" if rows else ""
