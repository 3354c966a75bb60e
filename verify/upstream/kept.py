"""The results of sound programs, of upstream's tests and ours: kept cell by cell, and summarised for the docs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from core.errors import ConfigError
from core.files import locked, sha256_bytes, sha256_file, write_json
from core.paths import ROOT
from core.sweep import Journal
from verify.agree import kept as agree_kept
from verify.agree.kept import Outcome
from verify.agree.programs import FURTHER, ZOO, table
from verify.upstream.suites import OURS
from verify.upstream.suites import family_of as ours

if TYPE_CHECKING:
    from verify.agree.look import Executor
    from verify.upstream.suites import Case, Test

KEPT = ROOT / "docs" / "data" / "sound-programs.json"
_GOOD = ("exact", "agrees")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Model):
    """One program of a test on one executor."""

    outcome: Outcome
    max_abs: float = 0.0
    right: Literal["", "lean", "upstream", "both", "known"] = ""
    """Where the engines differ: whose outputs are PyTorch's; ``both``: both refuse it; ``known``: it is refused
    for what docs/operators.md and docs/lean.md say is missing."""
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


class Family(_Model):
    """What the tests of a family gave."""

    tests: int = 0
    """That ran here, of those that there are."""
    programs: int = 0
    without: Mapping[str, int] = {}
    """Tests that gave no program: by outcome and reason, how many."""
    waiting: Mapping[str, int] = {}
    """Tests that did not run here: by file, how many."""


class Summary(_Model):
    """What the docs say."""

    schema_version: Literal[1] = 1
    families: Mapping[str, Family] = {}
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


def _waiting(tests: Sequence[Test], listed: Sequence[str]) -> dict[str, Family]:
    """Families with what is listed in them and did not run."""
    there = {test.name for test in tests}
    files: dict[str, Counter[str]] = {}
    for name in listed:
        of = files.setdefault(family_of(name), Counter())
        if name not in there:
            of[name.partition("::")[0].rpartition("/")[2]] += 1
    return {family: Family(waiting=dict(of.most_common())) for family, of in files.items()}


def summarize(tests: Sequence[Test], listed: Sequence[str], seen: Columns) -> Summary:
    """Count by families, and name what does not agree.

    Args:
        listed: the ids of the tests that there are.
    """
    families = _waiting(tests, listed)
    for test in tests:
        name = family_of(test.name)
        old = families.get(name, Family())
        without = Counter(old.without)
        if not test.cases:
            without[f"{test.outcome}: {test.why}".rstrip(": ")] += 1
        families[name] = Family(
            tests=old.tests + 1,
            programs=old.programs + len(test.cases),
            without=dict(without.most_common()),
            waiting=old.waiting,
        )
    named = [(case.name, family_of(test.name)) for test in tests for case in test.cases]
    counts, notable = [], []
    for (target, cpu, how), cells in seen.items():
        for family in families:
            ours = [cells.get(name) for name, of in named if of == family]
            found = Counter("not_run" if cell is None else cell.outcome.replace("too slow", "not_run") for cell in ours)
            counts.append(Counts(family=family, target=target, cpu=cpu, how=how, **found))
        notable += [
            Notable(case=name, target=target, cpu=cpu, outcome=cell.outcome, right=cell.right, why=cell.why)
            for name, cell in cells.items()
            if not cell.good
        ]
    return Summary(families=families, counts=tuple(counts), notable=tuple(notable))


def publish(new: Summary) -> None:
    """Put a summary into the docs' file; it replaces that of the same families on the same targets and CPUs."""
    with locked("agreement"):
        try:
            old = Summary.model_validate(json.loads(KEPT.read_text(encoding="utf-8")))
        except FileNotFoundError:
            old = Summary()
        here = {(one.family, one.target, one.cpu) for one in new.counts}
        counts = [one for one in old.counts if (one.family, one.target, one.cpu) not in here]
        notable = [one for one in old.notable if (family_of(one.case), one.target, one.cpu) not in here]
        merged = Summary(
            families={**old.families, **new.families},
            counts=(*counts, *new.counts),
            notable=(*notable, *new.notable),
        )
        write_json(KEPT, merged.model_dump(mode="json"))


def rows(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table with a line for each family and executor."""
    heads = ["tests", "target", "CPU", "how", "exact", "within tolerance", "differs", "refused", "failed", "not run"]
    found = []
    for one in summary.counts:
        numbers = (one.exact, one.agrees, one.differs, one.refused, one.failed, one.not_run)
        found.append([one.family, one.target, one.cpu, one.how, *map(str, numbers)])
    return heads, found


def corpus(summary: Summary, columns: agree_kept.Columns) -> str:
    """The first table of ``docs/agreement.md`` about sound programs: what became of each source, wherever it ran."""
    lines = ["| source | programs with inputs | targets and CPUs | comparisons | agree | refused | differ | failed |"]
    lines.append(f"|{'---|' * 8}")
    total = 0
    for title, kind in (("the zoo, all schemes", ZOO), ("further architectures", FURTHER)):
        names = [name for name, about in table().items() if about.kind == kind]
        cells = [column.cells[name] for column in columns.columns for name in names if name in column.cells]
        found = Counter(str(cell.outcome) for cell in cells)
        total += len(names)
        lines.append(_source(title, len(names), len(columns.columns), found))
    for name, family in summary.families.items():
        ours = [one for one in summary.counts if one.family == name]
        found = Counter[str](
            {kind: sum(getattr(one, kind) for one in ours) for kind in (*_GOOD, "refused", "differs", "failed")}
        )
        total += family.programs
        lines.append(_source(name, family.programs, len(ours), found))
    return f"{total:,} programs with inputs.\n\n" + "\n".join(lines) + "\n"


def _source(title: str, programs: int, places: int, found: Mapping[str, int]) -> str:
    good = sum(found.get(one, 0) for one in _GOOD)
    bad = [found.get(one, 0) for one in ("refused", "differs", "failed")]
    numbers = (programs, places, good + sum(bad), good, *bad)
    return f"| {title} | {' | '.join(f'{one:,}' for one in numbers)} |"


def markdown(summary: Summary) -> str:
    """The tables of ``docs/agreement.md``."""
    ran = sum(one.tests for one in summary.families.values())
    waiting = sum(sum(one.waiting.values()) for one in summary.families.values())
    lines = [f"{ran} of {ran + waiting} tests ran here.", ""]
    lines += ["| tests | ran | programs with inputs | tests without a program |", "|---|---|---|---|"]
    for name, family in summary.families.items():
        lines.append(f"| {name} | {family.tests} | {family.programs} | {sum(family.without.values())} |")
    for name, family in summary.families.items():
        if family.waiting:
            files = ", ".join(f"{file} ({count})" for file, count in family.waiting.items())
            head = f"<summary>Not run here, of {name}: {sum(family.waiting.values())} tests</summary>"
            lines += ["", "<details>", head, "", f"{files}.", "", "</details>"]
    heads, body = rows(summary)
    lines += ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(row)} |" for row in body]
    reasons: Counter[str] = Counter()
    for family in summary.families.values():
        reasons.update(family.without)
    if reasons:
        lines += ["", "Tests without a program, by the outcome that upstream's own test gave:", ""]
        lines += [f"- {count}: {_plain(reason)}" for reason, count in reasons.most_common()]
    if summary.notable:
        lines += ["", "Programs that differ, fail or are refused:", ""]
        lines += _remarks(summary.notable)
    return "\n".join(lines) + "\n"


_RIGHT = {
    "lean": "; lean is right",
    "upstream": "; upstream is right",
    "both": "; upstream's runtime refuses it, too",
    "known": ", as docs/lean.md says",
}


def _remarks(notable: Sequence[Notable]) -> list[str]:
    """Programs that do not agree: a line for each program, or for all with the same text and CPU models."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in notable:
        said = f"{one.outcome}{_RIGHT.get(one.right, '')}: {one.why}"
        groups.setdefault((one.case, said), []).append(f"{one.target} {one.cpu}")
    cases: dict[tuple[str, str], list[str]] = {}
    for (case, said), at in groups.items():
        cases.setdefault((", ".join(at), said), []).append(case)
    return [f"- {', '.join(names)}, {at}: {_plain(said)}" for (at, said), names in cases.items()]


def _plain(text: str) -> str:
    """Words of others as text: no markup, no table."""
    return text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").rstrip(":")


def kept() -> Summary:
    """What the docs have.

    Raises:
        ConfigError: the file is damaged.
    """
    try:
        return Summary.model_validate(json.loads(KEPT.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{KEPT} cannot be read.", str(error), "./inv agree --sound --update") from error
