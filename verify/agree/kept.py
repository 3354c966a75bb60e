"""The results of comparisons with upstream's runtime: cell by cell, and counted by families for the docs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from core import console
from core.formats.program import ENDLESS
from toolchains.emulation import platforms
from toolchains.targets import Target, load_targets
from verify.agree import on_device
from verify.agree.programs import table
from verify.tables import Row, Table

COUNTS = Table("docs/proofs.md", "agreement")
REMARKS = Table("docs/proofs.md", "remarks")
ZOO = "the zoo, architectures"
"""The family of the programs that `verify.agree.programs` knows."""
INFINITE = ENDLESS
Outcome = Literal["exact", "agrees", "differs", "refused", "failed", "too slow"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Model):
    """One program on one executor."""

    outcome: Outcome
    """``exact``: bit for bit; ``refused``: the engine does not take it there, and says why."""
    max_abs: float = 0.0
    """Largest absolute difference from upstream's outputs; `INFINITE` if it is not a number."""
    right: Literal["", "lean", "upstream", "both", "known"] = ""
    """Where the engines differ: whose outputs are PyTorch's; ``both``: both refuse it; ``known``: it is refused for
    what docs/lean.md says is missing."""
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the outputs agree, and nothing is to be explained."""
        return self.outcome in ("exact", "agrees") and not self.right


class Column(_Model):
    """Programs on one executor."""

    target: str
    cpu: str
    """One of `places`."""
    how: str
    cells: Mapping[str, Cell] = {}
    """By the program's name."""


class Counts(_Model):
    """The programs of one family on one executor."""

    family: str
    target: str
    cpu: str
    how: str
    programs: int = 0
    exact: int = 0
    agrees: int = 0
    differs: int = 0
    refused: int = 0
    failed: int = 0
    not_run: int = 0


class Notable(_Model):
    """A program that does not agree on one executor."""

    case: str
    family: str
    target: str
    cpu: str
    outcome: Outcome
    right: str
    why: str


class Summary(_Model):
    """What the docs say."""

    counts: tuple[Counts, ...] = ()
    notable: tuple[Notable, ...] = ()


def places(target: Target) -> tuple[str, ...]:
    """Where the target's programs are compared on this machine: its platforms here, and virtual devices."""
    return (*platforms.cpus(target), *on_device.cpus(target))


def everywhere() -> list[tuple[str, str]]:
    """Every target with every CPU model that its programs may run on, on any machine, in the table's order."""
    return [(one.name, cpu) for one in load_targets().values() for cpu in dict.fromkeys(("native", *places(one)))]


def cell_name(target: str, cpu: str, program: str) -> str:
    """The sweep's name of a program on an executor."""
    return f"{target} {cpu}: {program}"


def summarize(families: Mapping[str, Sequence[str]], columns: Iterable[Column]) -> Summary:
    """Count the programs of each family, and name what does not agree."""
    counts, notable = [], []
    for column in columns:
        where = {"target": column.target, "cpu": column.cpu}
        for family, names in families.items():
            given = {name: column.cells.get(name) for name in names}
            outcomes = (one.outcome if one else "not run" for one in given.values())
            found = Counter({"too slow": "not_run", "not run": "not_run"}.get(one, one) for one in outcomes)
            place = {**where, "family": family, "how": column.how, "programs": len(names)}
            counts.append(Counts.model_validate({**place, **found}))
            notable += [
                Notable.model_validate(
                    {**where, "case": name, "family": family, **cell.model_dump(include={"outcome", "right", "why"})}
                )
                for name, cell in given.items()
                if cell and not cell.good
            ]
    return Summary(counts=tuple(counts), notable=tuple(notable))


def of_zoo(columns: Iterable[Column]) -> Summary:
    """The zoo and the architectures where every program of them ran."""
    names = list(table())
    whole = []
    for one in columns:
        if left := set(names) - set(one.cells):
            console.note(f"{one.target} {one.cpu}: {len(left)} programs did not run: not kept")
        else:
            whole.append(one)
    return summarize({ZOO: names}, whole)


def publish(new: Summary) -> None:
    """Put a summary into the docs' tables, in the place of what they say of the same families and places."""
    heads, body = rows(new)
    families, order = {row[0] for row in body}, everywhere()
    COUNTS.put(
        [dict(zip(heads, row, strict=True)) for row in body],
        ("tests", "target", "CPU"),
        # The zoo first, by its places; the others as they come.
        order=lambda row: (row["tests"] != ZOO, order.index(_place(row)) if row["tests"] == ZOO else 0),
        keep=lambda row: row["tests"] != ZOO or _place(row) in order,
    )
    REMARKS.put(_remarks(new), ("tests", "outcome", "reason"), keep=lambda row: row["tests"] not in families)


def _place(row: Row) -> tuple[str, str]:
    return row["target"], row["CPU"]


def text(cell: Cell | None) -> str:
    """A cell for people: ``exact``, ``2.4e-07``, or what became of it."""
    if cell is None:
        return "not run"
    if cell.outcome == "agrees":
        return f"{cell.max_abs:.1g}"
    if cell.outcome == "differs":
        return f"differs: {cell.max_abs:.1g}" if cell.max_abs < INFINITE else "differs"
    return f"not run: {cell.why}" if cell.outcome == "too slow" else cell.outcome


_OUTCOMES = {
    "exact": "exact", "within tolerance": "agrees", "differs": "differs", "refused": "refused", "failed": "failed",
    "not run": "not_run",
}  # fmt: skip
"""The tables' headings of `Counts`."""


def rows(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table with a line for each family and executor."""
    found = [
        [one.family, one.target, one.cpu, one.how, str(one.programs),
         *(str(getattr(one, name)) for name in _OUTCOMES.values())]
        for one in summary.counts
    ]  # fmt: skip
    return ["tests", "target", "CPU", "how", "programs", *_OUTCOMES], found


def _sums(rows: Iterable[Row]) -> Counter[str]:
    return sum((Counter({head: int(row[head]) for head in _OUTCOMES}) for row in rows), Counter())


def in_short() -> str:
    """What the docs say of the zoo in one sentence, for pages that link to it; and the targets that were not run."""
    rows = [row for row in COUNTS.rows() if row["tests"] == ZOO]
    sums = _sums(rows)
    said = ", ".join(f"{sums[head]:,} {head}" for head in _OUTCOMES)
    head = f"{len(table())} programs, each on {len(rows)} combinations of target and CPU: {said}.\n"
    named = {row["target"] for row in rows}
    idle = [one for one in load_targets().values() if one.name not in named]
    why = [f"{one.name}: {one.proof.removeprefix('none: ')}" for one in idle]
    return head + (f"\nNot run: {'; '.join(why)}.\n" if why else "")


def corpus() -> str:
    """The docs' table in one sentence."""
    rows = COUNTS.rows()
    programs, sums = {row["tests"]: int(row["programs"]) for row in rows}, _sums(rows)
    agree = sums["exact"] + sums["within tolerance"]
    return (
        f"{sum(programs.values()):,} programs with inputs, {sums.total() - sums['not run']:,} comparisons: {agree:,} "
        f"agree, {sums['refused']:,} are refused, {sums['differs']:,} differ, {sums['failed']:,} failed.\n"
    )


_RIGHT = {
    "lean": "; lean is right",
    "upstream": "; upstream is right",
    "both": "; upstream's runtime refuses it, too",
    "known": ", as docs/lean.md says",
}


def _remarks(summary: Summary) -> list[Row]:
    """What did not agree: a row for each family, outcome and reason."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for one in summary.notable:
        outcome = f"{one.outcome}{_RIGHT.get(one.right, '')}"
        reason = _plain(one.why.partition(" Upstream's runtime:")[0]) if one.outcome == "refused" else ""
        found.setdefault((one.family, outcome, reason), set()).add(one.case)
    return [
        {"tests": family, "outcome": outcome, "programs": str(len(cases)), "reason": reason}
        for (family, outcome, reason), cases in found.items()
    ]


def _plain(text: str) -> str:
    """Words of others as text: no markup, no table, no folder of this machine."""
    text = re.sub(r"(?<![\w.])(?:/[^\s,:/]+)+/(?=[^\s/])", "", text)
    return text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").rstrip(":")
