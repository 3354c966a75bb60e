"""The results of comparisons with upstream's runtime: cell by cell, and counted for the docs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from core import console
from core.formats.program import ENDLESS
from toolchains.emulation import platforms
from toolchains.targets import Target, load_targets
from verify.agree import on_device
from verify.agree.programs import table
from verify.tables import Table

AGREEMENT = Table("docs/proofs.md", "agreement")
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
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the outputs agree."""
        return self.outcome in ("exact", "agrees")


class Facts(_Model):
    """What is known of a program once it is exported."""

    kernels: int = 0
    """Operators outside delegates, by kinds."""
    delegates: int = 0
    allowed: float = 0.0
    """The widest absolute tolerance of its outputs; 0: the same bits."""


class Column(_Model):
    """All programs on one executor."""

    target: str
    cpu: str
    """One of `places`."""
    how: str
    cells: Mapping[str, Cell] = {}
    """By the program's name."""


def places(target: Target) -> tuple[str, ...]:
    """Where the target's programs are compared on this machine: its platforms here, and virtual devices."""
    return (*platforms.cpus(target), *on_device.cpus(target))


def everywhere() -> list[tuple[Target, str]]:
    """Every target with every CPU model that its programs may run on, on any machine, in the table's order."""
    return [(one, cpu) for one in load_targets().values() for cpu in dict.fromkeys(("native", *places(one)))]


def publish(columns: Iterable[Column]) -> None:
    """Put the counts of places where every program ran into the table of the docs."""
    names = set(table())
    whole = []
    for one in columns:
        if names <= set(one.cells):
            whole.append(one)
        else:
            console.note(f"{one.target} {one.cpu}: {len(names - set(one.cells))} programs did not run: not kept")
    heads, rows = counts(whole, names)
    order = {(target.name, cpu): at for at, (target, cpu) in enumerate(everywhere())}
    AGREEMENT.put(
        [dict(zip(heads, row, strict=True)) for row in rows],
        ("target", "CPU"),
        order=lambda row: order[row["target"], row["CPU"]],
        keep=lambda row: (row["target"], row["CPU"]) in order,
    )


def text(cell: Cell | None) -> str:
    """A cell for people: ``exact``, ``2.4e-07``, or what became of it."""
    if cell is None:
        return "not run"
    if cell.outcome == "agrees":
        return f"{cell.max_abs:.1g}"
    if cell.outcome == "differs":
        return f"**differs: {cell.max_abs:.1g}**" if cell.max_abs < INFINITE else "**differs**"
    return f"not run: {cell.why}" if cell.outcome == "too slow" else cell.outcome


def counts(columns: Iterable[Column], programs: Collection[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table with a line for each executor: how ``programs`` ran there, and their outcomes."""
    heads = ["target", "CPU", "how", "exact", "within tolerance", "refused", "wrong", "not run"]
    rows = []
    for column in columns:
        found = [
            sum(cell.outcome in outcomes for cell in column.cells.values())
            for outcomes in (("exact",), ("agrees",), ("refused",), ("differs", "failed"), ("too slow",))
        ]
        found[-1] += len(set(programs) - set(column.cells))
        rows.append([column.target, column.cpu, column.how, *map(str, found)])
    return heads, rows


def in_short() -> str:
    """All counts of the docs' table in one sentence, for pages that link to it; and the targets that were not run."""
    rows = AGREEMENT.rows()
    heads = ("exact", "within tolerance", "refused", "wrong", "not run")
    sums = [f"{sum(int(row[head]) for row in rows):,} {head}" for head in heads]
    head = f"{len(table())} programs, each on {len(rows)} combinations of target and CPU: {', '.join(sums)}.\n"
    named = {row["target"] for row in rows}
    idle = [one for one in load_targets().values() if one.name not in named]
    why = [f"{one.name}: {one.proof.removeprefix('none: ')}" for one in idle]
    return head + (f"\nNot run: {'; '.join(why)}.\n" if why else "")
