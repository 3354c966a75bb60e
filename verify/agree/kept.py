"""The results of comparisons with upstream's runtime: cell by cell, and counted by families for the docs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core import console
from toolchains.emulation import platforms
from toolchains.targets import Target, load_targets
from verify.agree.programs import INFINITE, Cell
from verify.tables import Row, Table

COUNTS = Table("docs/proofs.md", "agreement")
REMARKS = Table("docs/proofs.md", "remarks")
ZOO = "the zoo, architectures"
"""The family of the programs that `verify.agree.programs` knows."""


@dataclass(frozen=True)
class Column:
    """Programs on one executor."""

    target: str
    cpu: str
    """One of `toolchains.emulation.platforms.cpus`."""
    how: str
    cells: Mapping[str, Cell]
    """By the program's name."""


Families = Mapping[str, Sequence[str]]
"""Names of programs by the family that counts them."""


def everywhere() -> list[tuple[str, str]]:
    """Every target with every CPU model that its programs may run on, on any machine, in the table's order."""
    return [
        (one.name, cpu) for one in load_targets().values() for cpu in dict.fromkeys(("native", *platforms.cpus(one)))
    ]


def counts(families: Families, columns: Iterable[Column]) -> list[Row]:
    """A row for each family and executor: how many programs came to what."""
    found = []
    for column in columns:
        for family, names in families.items():
            cells = (column.cells.get(name) for name in names)
            outcomes = Counter(_HEADS.get(cell.outcome if cell else "", "not run") for cell in cells)
            row = {"tests": family, "target": column.target, "CPU": column.cpu, "how": column.how}
            row |= {"programs": str(len(names))}
            found.append({**row, **{head: str(outcomes[head]) for head in _OUTCOMES}})
    return found


def publish(families: Families, columns: Sequence[Column]) -> None:
    """Put counts into the docs' tables, for each family in the place of what they say of the same places.

    Places where not every program of a family has a result are left out.
    """
    rows: list[Row] = []
    whole = set()
    for column in columns:
        for family, names in families.items():
            if left := len([name for name in names if name not in column.cells]):
                console.note(f"{column.target} {column.cpu}: {left} of {family} did not run: not kept")
            else:
                whole.add(family)
                rows += counts({family: names}, [column])
    order = everywhere()
    COUNTS.put(
        rows,
        ("tests", "target", "CPU"),
        # The zoo first, by its places; the others as they come.
        order=lambda row: (row["tests"] != ZOO, order.index(_place(row)) if row["tests"] == ZOO else 0),
        keep=lambda row: row["tests"] != ZOO or _place(row) in order,
    )
    said = _remarks({family: names for family, names in families.items() if family in whole}, columns)
    REMARKS.put(said, ("tests", "outcome"), keep=lambda row: row["tests"] not in whole)


def agreeing(target: Target) -> list[str]:
    """Each CPU model of the target on which all programs of the zoo that were compared agree.

    ``native (AVX2)`` says how far the machine's own x86 went. AVX512 is named if none had it: nothing emulates it.
    """
    found = [
        row["CPU"] + "".join(re.findall(r" \((?:SSE|AVX2|AVX512)\)$", row["how"]))
        for row in COUNTS.rows()
        if (row["tests"], row["target"]) == (ZOO, target.name) and row["differs"] == row["failed"] == "0"
    ]
    wide = target.machine not in ("x86_64", "i686") or any("AVX512" in name for name in found)
    return found if wide or not found else [*found, "AVX512 not run"]


def _place(row: Row) -> tuple[str, str]:
    return row["target"], row["CPU"]


def text(cell: Cell | None) -> str:
    """A cell for people: ``exact``, ``2.4e-07``, or what became of it."""
    if cell is None:
        return "not run"
    if cell.outcome == "agrees":
        return "upstream refuses it" if cell.right else f"{cell.max_abs:.1g}"
    if cell.outcome == "differs":
        return f"differs: {cell.max_abs:.1g}" if cell.max_abs < INFINITE else "differs"
    return f"not run: {cell.why}" if cell.outcome == "too slow" else cell.outcome


_HEADS = {"agrees": "within tolerance", **{name: name for name in ("exact", "differs", "refused", "failed")}}
_OUTCOMES = ("exact", "within tolerance", "differs", "refused", "failed", "not run")
"""The tables' headings."""


_RIGHT = {
    "lean": "; lean is right",
    "upstream": "; upstream is right",
    "both": "; upstream's runtime refuses it, too",
    "known": ", as docs/lean.md says",
}


def _remarks(families: Families, columns: Sequence[Column]) -> list[Row]:
    """What did not agree: a row for each family and outcome."""
    found: dict[tuple[str, str], set[str]] = {}
    for family, names in families.items():
        for name, cell in ((name, column.cells.get(name)) for column in columns for name in names):
            if cell is not None and not cell.good:
                found.setdefault((family, f"{cell.outcome}{_RIGHT.get(cell.right, '')}"), set()).add(name)
    return [{"tests": family, "outcome": what, "programs": str(len(cases))} for (family, what), cases in found.items()]
