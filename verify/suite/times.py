"""Where a test run's minutes go: kept by every run, shown by ``./inv test --times``.

A run writes ``dist/tests/times.json``: its steps, what it left out, and from pytest's report the seconds of every test
(set-up, call and tear-down together) and its processor time (``tests/conftest.py``), which says whether it computes or
waits. A run of all tests is kept beside it, until the next one: of that, ``python -m verify.suite.times`` keeps the
largest figures for ``docs/development.md``, and the seconds of each file for `verify.suite.choosing.part`.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from core import console
from core.errors import HostError
from core.files import write_json
from core.paths import dist_part
from verify.tables import Table, table_of

if TYPE_CHECKING:
    from junitparser import TestCase

TIMES = Table("docs/development.md", "times")
SUITES = Table("docs/development.md", "suites")
SLOWEST = 20
"""Tests in the list of the slowest, and files in the list of suites."""


@dataclass(frozen=True)
class Step:
    """One check of the run; ``seconds`` of wall time."""

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """One test; ``seconds`` from the start of its set-up to the end of its tear-down.

    ``processor`` has the seconds that it computed, in processes that ended, too: a virtual device's are not counted.
    """

    file: str
    name: str
    seconds: float
    processor: float = 0.0


@dataclass(frozen=True)
class Suite:
    """A file of tests, and the seconds of all tests in it."""

    file: str
    tests: int
    seconds: float
    processor: float = 0.0


@dataclass(frozen=True)
class Times:
    """One run. ``load`` is the load average before it, ``ended`` is in UTC; ``left`` says what did not run."""

    ended: str
    processors: int
    load: float
    steps: tuple[Step, ...]
    suites: tuple[Suite, ...] = ()
    slowest: tuple[Case, ...] = field(default=())
    command: str = "./inv test --all"
    left: tuple[str, ...] = ()
    took: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of all steps, of which some ran side by side."""
        return self.took or sum(step.seconds for step in self.steps)

    @property
    def whole(self) -> bool:
        """All tests ran."""
        return "--all" in self.command.split() and "--shard" not in self.command and not self.left


def report(step: str) -> Path:
    """Where pytest leaves its report of a step."""
    return dist_part("tests") / f"{step.replace(' ', '-')}.xml"


def read(reports: Iterable[Path]) -> list[Case]:
    """The tests of pytest's reports; a report that pytest did not get to write is passed over."""
    from junitparser import JUnitXml, TestCase

    found: list[Case] = []
    for path in reports:
        if path.is_file():
            cases = (case for suite in JUnitXml.fromfile(os.fspath(path)) for case in suite)
            found += [_case(case) for case in cases if isinstance(case, TestCase)]
    return found


def _case(case: TestCase) -> Case:
    from junitparser import Properties

    said = case.child(Properties)
    computed = next((one.value for one in said or () if one.name == "processor"), None)
    file = f"{(case.classname or '').replace('.', '/')}.py"
    return Case(file, case.name or "", round(float(case.time or 0), 1), float(computed or 0))


def summed(tests: Iterable[Case]) -> tuple[Suite, ...]:
    """Tests by file, the file with most seconds first."""
    files: dict[str, list[Case]] = defaultdict(list)
    for test in tests:
        files[test.file].append(test)
    suites = (Suite(name, len(cases), *_sums(cases)) for name, cases in files.items())
    return tuple(sorted(suites, key=lambda suite: (-suite.seconds, suite.file)))


def _sums(cases: Sequence[Case]) -> tuple[float, float]:
    return round(sum(one.seconds for one in cases), 1), round(sum(one.processor for one in cases), 1)


def keep(
    steps: Sequence[Step],
    tests: Sequence[Case],
    load: float,
    command: str,
    left: Sequence[str] = (),
    took: float = 0.0,
) -> None:
    """Write a run's figures to ``dist/tests``."""
    slowest = sorted(tests, key=lambda test: (-test.seconds, test.file, test.name))
    ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run = Times(
        ended,
        os.cpu_count() or 1,
        round(load, 1),
        tuple(steps),
        summed(tests),
        tuple(slowest),
        command,
        tuple(left),
        round(took, 1),
    )
    for file in (_last(), _last(whole=True)) if run.whole else (_last(),):
        write_json(file, asdict(run))


def _last(*, whole: bool = False) -> Path:
    return dist_part("tests") / ("times-all.json" if whole else "times.json")


def load_times(path: Path) -> Times:
    """Read what `keep` wrote."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found["steps"] = tuple(Step(**step) for step in found["steps"])
    found["suites"] = tuple(Suite(**suite) for suite in found["suites"])
    found["slowest"] = tuple(Case(**test) for test in found["slowest"])
    found["left"] = tuple(found.get("left", ()))
    return Times(**found)


def seconds() -> dict[str, float]:
    """Seconds of the longest suites, as docs/development.md has them."""
    return {row["suite"].strip("`"): _seconds(row["time"]) for row in SUITES.rows()}


def _seconds(text: str) -> float:
    """What `clock` wrote."""
    minutes, _, rest = text.partition(" ")[0].rpartition(":")
    return int(minutes or 0) * 60 + float(rest)


def show(*, update: bool) -> None:
    """Print the last run's steps, suites and slowest tests; with ``update`` the last one's of all tests, and keep them.

    Raises:
        HostError: no such run has ended in this checkout.
    """
    if not _last(whole=update).is_file():
        raise HostError(
            f"No run of {'all ' * update}the tests is on record here.",
            "the docs' figures are those of a run that leaves nothing out" if update else "",
            f"./inv test{' --all --again' * update}",
        )
    last = load_times(_last(whole=update))
    console.note(f"{last.command} took {clock(last.seconds)} on {last.processors} cores and ended at {last.ended}")
    for text in last.left:
        console.note(f"left out: {text}")
    for columns, rows in tables(last):
        if rows:
            console.table("", columns, rows)
    if update:
        steps, suites, slowest = ((columns, [[_code(cell) for cell in row] for row in rows])
                                  for columns, rows in tables(last))  # fmt: skip
        TIMES.write(f"{_head(last)}\n{table_of(*steps)}\n{table_of(*slowest)}")
        SUITES.write(table_of(*suites))


def tables(run: Times) -> list[tuple[list[str], list[list[str]]]]:
    """Three tables, each as its columns and its rows: steps, suites, slowest tests."""
    return [
        (["step", "outcome", "time"], [[step.name, step.outcome, clock(step.seconds)] for step in run.steps]),
        (
            ["suite", "tests", "time", "of it computing"],
            [
                [suite.file, str(suite.tests), clock(suite.seconds), clock(suite.processor)]
                for suite in run.suites[:SLOWEST]
            ],
        ),
        (
            ["slowest tests", "time", "of it computing"],
            [
                [f"{Path(test.file).stem}::{test.name}", clock(test.seconds), clock(test.processor)]
                for test in run.slowest[:SLOWEST]
            ],
        ),
    ]


def clock(seconds: float) -> str:
    """``75.2`` as ``1:15 min``; what is shorter than a minute in seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min" if seconds >= 60 else f"{seconds:.1f} s"


def _head(run: Times) -> str:
    return (
        f"A whole run on {run.processors} cores took {clock(run.seconds)} after its packages were installed "
        f"(ended {run.ended}; load average before it {run.load}). Tests run side by side and wait for each "
        "other's builds, so their times add up to more.\n"
    )


def _code(text: str) -> str:
    return f"`{text}`" if "::" in text or text.endswith(".py") else text


if __name__ == "__main__":
    show(update=True)
