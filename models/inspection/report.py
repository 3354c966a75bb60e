"""Operators of one run or of two: as a table for people, as JSON for machines."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from core import console
from core.errors import UsageError
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


def _time(name: str) -> Callable[[Row], Any]:
    return lambda row: -(getattr(row.times, name) if row.times else -1.0)


ORDERS: dict[str, Callable[[Row], Any]] = {
    "order": lambda _row: 0,
    "name": lambda row: row.name,
    "module": lambda row: ((row.origin or Origin()).module, row.instruction),
    "kernel": lambda row: row.kernel.name if row.kernel else "\uffff",
    "count": lambda row: -row.count,
    "share": lambda row: -(row.share or 0.0),
    "warmup": lambda row: -(row.warmup.total if row.warmup else -1.0),
    **{name: _time(name) for name in ("min", "p10", "p50", "p90", "max")},
}
"""What rows can be sorted by; times and shares: the largest first. Equal ones keep the order in which they ran."""
TIMES = frozenset(("share", "warmup", "min", "p10", "p50", "p90", "max"))


def sort(found: Sequence[Row], by: str) -> tuple[Row, ...]:
    """The rows in another order.

    Raises:
        UsageError: there is no such order.
    """
    if by not in ORDERS:
        raise UsageError(f"There is no order {by!r}.", f"they are {', '.join(ORDERS)}", "--sort p50")
    return tuple(sorted(found, key=ORDERS[by]))


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


def _where(row: Row) -> Hashable:
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
        ("kind, module and line", _where),
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
