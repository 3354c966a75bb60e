"""Two runs side by side, matched by operator: of one program with two kernels or engines, or of two of its schemes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from models.inspection.origins import Origin
from models.inspection.rows import Row


@dataclass(frozen=True)
class Pair:
    """An operator in both runs, or in one of them."""

    one: Row | None
    other: Row | None
    by: str
    """How they were matched; empty if there is no partner."""

    @property
    def ratio(self) -> float | None:
        """The median of the other run by that of the one; ``None`` without both, or if the first is 0."""
        if self.one is None or self.other is None or self.one.times is None or self.other.times is None:
            return None
        return self.other.times.p50 / self.one.times.p50 if self.one.times.p50 else None

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "one": self.one and self.one.to_json(),
            "other": self.other and self.other.to_json(),
            "by": self.by,
            "ratio": self.ratio,
        }


def _kind(row: Row) -> str:
    """``Fully Connected`` without types and ways: ``(NC, PF32) GEMM`` is another kernel for the same layer."""
    return row.operator.partition(" (")[0] + (" DWConv" if "DWConv" in row.operator else "")


def _node(row: Row) -> Hashable:
    if row.provider == "runtime":
        return row.name
    node = (row.origin or Origin()).node
    return (row.instruction, node) if node >= 0 else (row.instruction, row.name)


def _kind_there(row: Row) -> Hashable:
    return row.instruction, _kind(row)


def _place(row: Row) -> Hashable:
    origin = row.origin or Origin()
    return (_kind(row), origin.module, origin.source) if origin.module or origin.source else None


def _in_order(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> dict[Hashable, Row]:
    """Rows by key, and by their number among those with the same key."""
    seen: dict[Hashable, int] = {}
    found: dict[Hashable, Row] = {}
    for row in rows:
        name = key(row)
        if name is not None:
            seen[name] = seen.get(name, 0) + 1
            found[name, seen[name]] = row
    return found


def pair(ones: Sequence[Row], others: Sequence[Row], *, same_program: bool) -> tuple[Pair, ...]:
    """Match two runs' rows, those of the first in their order, then those without a partner.

    Args:
        same_program: both ran the same file, so that instructions and nodes of delegates are the same.
    """
    ways: list[tuple[str, Callable[[Row], Hashable]]] = [
        *([("instruction and node", _node)] if same_program else []),
        ("kind, module and line", _place),
        *([("instruction, kind and order", _kind_there)] if same_program else []),
        ("kind and order", _kind),
    ]
    partners: dict[int, tuple[Row, str]] = {}
    left, right = list(ones), list(others)
    for by, key in ways:
        there = _in_order(right, key)
        for name, row in _in_order(left, key).items():
            if name in there:
                partners[id(row)] = (there[name], by)
        taken = {id(other) for other, _ in partners.values()}
        left = [row for row in left if id(row) not in partners]
        right = [row for row in right if id(row) not in taken]
    found = [Pair(row, *partners.get(id(row), (None, ""))) for row in ones]
    return (*found, *(Pair(None, row, "") for row in right))
