"""Where a test run's minutes go: kept by every run, shown by ``./inv test --times``.

A run writes ``dist/tests/times.json``: its steps, what it left out, and from pytest's report the seconds of every test
(set-up, call and tear-down together) and its processor time (``tests/conftest.py``), which says whether it computes or
waits.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import HostError
from core.files import write_json
from core.paths import dist_part

if TYPE_CHECKING:
    from junitparser import TestCase

SLOWEST = 20
"""Tests in the list of the slowest, and files in the list of suites."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(_Row):
    """One check of the run; ``seconds`` of wall time."""

    name: str
    outcome: str
    seconds: float


class Case(_Row):
    """One test; ``seconds`` from the start of its set-up to the end of its tear-down.

    ``processor`` has the seconds that it computed, in processes that ended, too: a virtual device's are not counted.
    """

    file: str
    name: str
    seconds: float
    processor: float = 0.0
    passed: bool = True


class Suite(_Row):
    """A file of tests, and the seconds of all tests in it."""

    file: str
    tests: int
    seconds: float
    processor: float


class Times(_Row):
    """One run. ``load`` is the load average before it, ``ended`` is in UTC; ``left`` says what did not run."""

    ended: str
    processors: int
    load: float
    steps: tuple[Step, ...]
    suites: tuple[Suite, ...]
    slowest: tuple[Case, ...]
    command: str
    left: tuple[str, ...]
    seconds: float
    """Wall time of all steps, of which some ran side by side."""


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
    return Case(
        file=f"{(case.classname or '').replace('.', '/')}.py", name=case.name or "",
        seconds=round(float(case.time or 0), 1), processor=float(computed or 0), passed=not case.result,
    )  # fmt: skip


def summed(tests: Iterable[Case]) -> tuple[Suite, ...]:
    """Tests by file, the file with most seconds first."""
    files: dict[str, list[Case]] = defaultdict(list)
    for test in tests:
        files[test.file].append(test)
    suites = (
        Suite(
            file=name, tests=len(cases), seconds=round(sum(one.seconds for one in cases), 1),
            processor=round(sum(one.processor for one in cases), 1),
        )
        for name, cases in files.items()
    )  # fmt: skip
    return tuple(sorted(suites, key=lambda suite: (-suite.seconds, suite.file)))


def keep(
    steps: Sequence[Step], tests: Sequence[Case], load: float, command: str, left: Sequence[str], took: float
) -> None:
    """Write a run's figures to ``dist/tests``."""
    slowest = sorted(tests, key=lambda test: (-test.seconds, test.file, test.name))
    ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run = Times(
        ended=ended, processors=os.cpu_count() or 1, load=round(load, 1), steps=tuple(steps), suites=summed(tests),
        slowest=tuple(slowest), command=command, left=tuple(left), seconds=round(took, 1),
    )  # fmt: skip
    write_json(_last(), run.model_dump(mode="json"))


def _last() -> Path:
    return dist_part("tests") / "times.json"


def load_times(path: Path) -> Times:
    """Read what `keep` wrote."""
    return Times.model_validate_json(path.read_bytes())


def show() -> None:
    """Print the last run's steps, suites and slowest tests.

    Raises:
        HostError: no run has ended in this checkout.
    """
    if not _last().is_file():
        raise HostError("No run of the tests is on record here.", "", "./inv test")
    last = load_times(_last())
    console.note(f"{last.command} took {clock(last.seconds)} on {last.processors} cores and ended at {last.ended}")
    for text in last.left:
        console.note(f"left out: {text}")
    steps = [[one.name, one.outcome, clock(one.seconds)] for one in last.steps]
    suites = [[one.file, str(one.tests), clock(one.seconds), clock(one.processor)] for one in last.suites[:SLOWEST]]
    slowest = [
        [f"{Path(one.file).stem}::{one.name}", clock(one.seconds), clock(one.processor)]
        for one in last.slowest[:SLOWEST]
    ]
    for columns, rows in (
        (["step", "outcome", "time"], steps),
        (["suite", "tests", "time", "of it computing"], suites),
        (["slowest tests", "time", "of it computing"], slowest),
    ):
        if rows:
            console.table("", columns, rows)


def clock(seconds: float) -> str:
    """``75.2`` as ``1:15 min``; what is shorter than a minute in seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min" if seconds >= 60 else f"{seconds:.1f} s"
