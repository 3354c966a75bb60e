"""The results of sound programs, of upstream's tests and ours: kept cell by cell, and summarised for the docs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from core.files import sha256_bytes, sha256_file
from core.processes.sweep import Journal
from verify.agree import kept as agree_kept
from verify.agree.kept import Outcome
from verify.agree.programs import table
from verify.tables import Row, Table
from verify.upstream.suites import OURS
from verify.upstream.suites import family_of as ours

if TYPE_CHECKING:
    from verify.agree.look import Executor
    from verify.upstream.suites import Case, Test

COUNTS = Table("docs/proofs.md", "sound-programs")
REMARKS = Table("docs/proofs.md", "remarks")
_GOOD = ("exact", "agrees")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Model):
    """One program of a test on one executor."""

    outcome: Outcome
    max_abs: float = 0.0
    right: Literal["", "lean", "upstream", "both", "known"] = ""
    """Where the engines differ: whose outputs are PyTorch's; ``both``: both refuse it; ``known``: it is refused
    for what docs/lean.md and docs/lean.md say is missing."""
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is to be explained."""
        return self.outcome in _GOOD and not self.right


class Counts(_Model):
    """The programs of one family of tests on one executor."""

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
    target: str
    cpu: str
    outcome: Outcome
    right: str
    why: str


class Summary(_Model):
    """What the docs say."""

    counts: tuple[Counts, ...] = ()
    notable: tuple[Notable, ...] = ()


def journal() -> Journal[Cell]:
    """What was compared on this machine."""
    return Journal.of("upstream-tests", Cell)


def cell_name(executor: Executor, case: Case) -> str:
    """The cell of a case on an executor."""
    return f"{executor.target} {executor.platform.cpu}: {case.name}"


def digest(case: Case) -> str:
    """Of everything that decides what a comparison says, but the engine and how it compares."""
    files = [sha256_file(file) for file in (case.file, *case.files("input"), *case.files("output"))]
    parts: list[object] = [files, case.kind, case.steps, case.shallow]
    if case.test.startswith(OURS):
        before = [[name, [sha256_file(file) for file in given]] for name, given in case.first]
        parts += [case.method, case.runs, [sha256_file(file) for file in case.data], before]
    return sha256_bytes(json.dumps(parts).encode())[:16]


Columns = Mapping[tuple[str, str, str], Mapping[str, Cell]]
"""By target, CPU and how programs run there; then by the case's name."""


def columns(executors: Sequence[Executor], cases: Sequence[Case]) -> Columns:
    """The last results of these cases on these executors."""
    seen = dict(journal().all())
    return {
        (executor.target, executor.platform.cpu, executor.platform.how): {
            case.name: seen[name] for case in cases if (name := cell_name(executor, case)) in seen
        }
        for executor in executors
    }


def family_of(test: str) -> str:
    """``xnnpack/test/ops``, the flow of a test of the operators' suite, or the kind of a program of ours."""
    if test.startswith(OURS):
        return f"ours, {ours(test)}"
    if test.startswith("test/suite/operators"):
        return f"operators, flow {test.partition('[')[2].partition('-')[0].rstrip(']')}"
    return "xnnpack/test/ops"


def summarize(tests: Sequence[Test], seen: Columns) -> Summary:
    """Count by families, and name what does not agree."""
    named: dict[str, list[str]] = {}
    for test in tests:
        named.setdefault(family_of(test.name), []).extend(case.name for case in test.cases)
    counts, notable = [], []
    for (target, cpu, how), cells in seen.items():
        for family, names in named.items():
            given = [cells.get(name) for name in names]
            found = Counter("not_run" if one is None else one.outcome.replace("too slow", "not_run") for one in given)
            place = {"family": family, "target": target, "cpu": cpu, "how": how, "programs": len(names)}
            counts.append(Counts.model_validate({**place, **found}))
        notable += [
            Notable(case=name, target=target, cpu=cpu, outcome=cell.outcome, right=cell.right, why=cell.why)
            for name, cell in cells.items()
            if not cell.good
        ]
    return Summary(counts=tuple(counts), notable=tuple(notable))


def publish(new: Summary) -> None:
    """Put a summary into the docs' tables, in the place of what they say of the same families and places."""
    heads, body = rows(new)
    families = {row[0] for row in body}
    COUNTS.put([dict(zip(heads, row, strict=True)) for row in body], ("tests", "target", "CPU"))
    REMARKS.put(_remarks(new), ("tests", "outcome", "reason"), keep=lambda row: row["tests"] not in families)


def rows(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table with a line for each family and executor."""
    heads = ["tests", "target", "CPU", "how", "programs", "exact", "within tolerance", "differs", "refused"]
    heads += ["failed", "not run"]
    found = []
    for one in summary.counts:
        numbers = (one.programs, one.exact, one.agrees, one.differs, one.refused, one.failed, one.not_run)
        found.append([one.family, one.target, one.cpu, one.how, *map(str, numbers)])
    return heads, found


def corpus() -> str:
    """The docs' tables of sound programs in one sentence."""
    ours = COUNTS.rows()
    programs = {row["tests"]: int(row["programs"]) for row in ours}
    zoo = len(table())
    kinds = ("exact", "within tolerance", "refused", "differs", "failed")
    sums = Counter({kind: sum(int(row[kind]) for row in ours) for kind in kinds})
    for row in agree_kept.AGREEMENT.rows():
        sums.update({kind: int(row["wrong" if kind == "differs" else kind]) for kind in kinds if kind != "failed"})
    agree = sums["exact"] + sums["within tolerance"]
    return (
        f"{zoo + sum(programs.values()):,} programs with inputs, {sums.total():,} comparisons: {agree:,} agree, "
        f"{sums['refused']:,} are refused, {sums['differs']:,} differ, {sums['failed']:,} failed.\n"
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
        found.setdefault((family_of(one.case.partition(" #")[0]), outcome, reason), set()).add(one.case)
    return [
        {"tests": family, "outcome": outcome, "programs": str(len(cases)), "reason": reason}
        for (family, outcome, reason), cases in found.items()
    ]


def _plain(text: str) -> str:
    """Words of others as text: no markup, no table, no folder of this machine."""
    text = re.sub(r"(?<![\w.])(?:/[^\s,:/]+)+/(?=[^\s/])", "", text)
    return text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").rstrip(":")
