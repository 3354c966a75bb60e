"""The results of comparisons with upstream's runtime: kept cell by cell, and shown as tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import ConfigError
from core.files import locked, write_json
from core.paths import ROOT
from core.program import ENDLESS
from toolchains.emulation import platforms
from toolchains.targets import Target, load_targets
from verify.agree import on_device
from verify.agree.programs import table

KEPT = ROOT / "docs" / "data" / "agreement.json"
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


class Columns(_Model):
    """A file of them."""

    schema_version: Literal[1] = 1
    columns: tuple[Column, ...] = ()
    programs: Mapping[str, Facts] = {}

    def get(self, target: str, cpu: str) -> Column | None:
        """The column of a target and CPU model."""
        return next((one for one in self.columns if (one.target, one.cpu) == (target, cpu)), None)

    def updated(self, new: Iterable[Column], programs: Mapping[str, Facts]) -> Columns:
        """With the cells of ``new`` instead of earlier ones, and without cells of removed programs."""
        found = {(one.target, one.cpu): one for one in self.columns}
        known = table()
        for column in new:
            old = found.get((column.target, column.cpu))
            cells = {**(old.cells if old else {}), **column.cells}
            ordered = {name: cells[name] for name in known if name in cells}
            found[column.target, column.cpu] = column.model_copy(update={"cells": ordered})
        order = [(target.name, cpu) for target, cpu in everywhere()]
        facts = {**self.programs, **programs}
        return Columns(
            columns=tuple(found[key] for key in order if key in found),
            programs={name: facts[name] for name in known if name in facts},
        )


def places(target: Target) -> tuple[str, ...]:
    """Where the target's programs are compared on this machine: its platforms here, and virtual devices."""
    return (*platforms.cpus(target), *on_device.cpus(target))


def everywhere() -> list[tuple[Target, str]]:
    """Every target with every CPU model that its programs may run on, on any machine, in the table's order."""
    return [(one, cpu) for one in load_targets().values() for cpu in dict.fromkeys(("native", *places(one)))]


def load(path: Path) -> Columns:
    """Read a file of cells; nothing when there is none.

    Raises:
        ConfigError: it is damaged.
    """
    try:
        return Columns.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Columns()
    except (ValueError, ValidationError) as error:
        raise ConfigError(f"{path} holds no comparisons.", str(error), "remove it, then ./inv agree") from error


def add(path: Path, new: Iterable[Column], programs: Mapping[str, Facts]) -> None:
    """Put cells into a file."""
    with locked("agreement"):
        write_json(path, load(path).updated(new, programs).model_dump(mode="json", exclude_defaults=True))


def publish(new: Iterable[Column], programs: Mapping[str, Facts]) -> None:
    """Put cells into the docs' file."""
    add(KEPT, new, programs)


def text(cell: Cell | None) -> str:
    """A cell for people: ``exact``, ``2.4e-07``, or what became of it."""
    if cell is None:
        return "not run"
    if cell.outcome == "agrees":
        return f"{cell.max_abs:.1g}"
    if cell.outcome == "differs":
        return f"**differs: {cell.max_abs:.1g}**" if cell.max_abs < INFINITE else "**differs**"
    return f"not run: {cell.why}" if cell.outcome == "too slow" else cell.outcome


_FAMILIES = {
    "64-bit Arm": ("aarch64",),
    "32-bit Arm": ("armv7l", "armv6l"),
    "64-bit x86": ("x86_64",),
    "32-bit x86": ("i686",),
}


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


def in_short(kept: Columns) -> str:
    """All counts in one sentence, for pages that link to the tables; and the targets that were not run."""
    heads, rows = counts(kept.columns, table())
    first = heads.index("exact")
    sums = [f"{sum(int(row[at]) for row in rows):,} {heads[at]}" for at in range(first, len(heads))]
    head = f"{len(table())} programs, each on {len(rows)} combinations of target and CPU: {', '.join(sums)}.\n"
    return head + _elsewhere(kept)


def summary(kept: Columns) -> str:
    """`counts` for the docs, and the targets that were not run."""
    if not kept.columns:
        return "Nothing is kept yet.\n"
    heads, rows = counts(kept.columns, table())
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return f"{len(table())} programs.\n\n" + "\n".join(lines) + "\n" + _elsewhere(kept)


def _elsewhere(kept: Columns) -> str:
    """Targets that are not in the table, and why."""
    named = {column.target for column in kept.columns}
    idle = [one for one in load_targets().values() if one.name not in named]
    why = [f"{one.name}: {one.proof.removeprefix('none: ')}" for one in idle]
    return f"\nNot run: {'; '.join(why)}.\n" if why else ""


def markdown(kept: Columns) -> str:
    """The tables of ``docs/agreement.md``: for each family of machines programs as rows, CPU models as columns."""
    parts = [summary(kept)]
    machines = {name: target.machine for name, target in load_targets().items()}
    for family, members in _FAMILIES.items():
        columns = [one for one in kept.columns if machines.get(one.target) in members]
        if columns:
            parts += [f"### {family}\n", _family(columns, kept.programs)]
    reasons = _reasons(kept)
    if reasons:
        parts += ["### Refused, wrong or too slow\n", "\n".join(reasons) + "\n"]
    return "\n".join(parts)


def _family(columns: Sequence[Column], programs: Mapping[str, Facts]) -> str:
    heads = " | ".join(f"{one.target} {one.cpu}" for one in columns)
    lines = [f"| program | delegates, kernels | allowed | {heads} |", "|---|---|---|" + "---|" * len(columns)]
    for name in table():
        facts = programs.get(name)
        said = f"{facts.delegates}, {facts.kernels} | {_allowed(facts)}" if facts else " | "
        cells = " | ".join(text(column.cells.get(name)) for column in columns)
        lines.append(f"| {name} | {said} | {cells} |")
    return "\n".join(lines) + "\n"


def _allowed(facts: Facts) -> str:
    return f"{facts.allowed:.1g}" if facts.allowed else "exact"


def _reasons(kept: Columns) -> list[str]:
    """The reasons for cells without a figure, each with its targets, CPU models and programs."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for column in kept.columns:
        for name, cell in column.cells.items():
            if not cell.good:
                platforms_of = found.setdefault((cell.outcome, cell.why), {})
                platforms_of.setdefault(f"{column.target} {column.cpu}", []).append(name)
    lines = []
    for (outcome, why), executors in found.items():
        programs = sorted({name for names in executors.values() for name in names})
        said = why.rstrip(".") or "the outputs are outside the tolerance"
        lines.append(f"- {outcome}: {said}: {', '.join(programs)} on {', '.join(executors)}")
    return lines
