"""What ``./inv test`` runs for each option, and what it keeps of the times."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from core import environment
from core.errors import UsageError
from tests.conftest import Inv
from verify.suite import ahead, exported, runner, times
from verify.suite.runner import Choice
from verify.suite.times import Case, Step, Suite, Times

LINT = ["ruff check", "ruff format", "mypy", "clang-format", "shellcheck"]
UNITS, REST = "unit tests", "integration and fault tests"


def names(choice: Choice) -> list[str]:
    return [step.name for step in runner.steps(choice)]


def argv(choice: Choice, name: str) -> tuple[str, ...]:
    return next(step.argv for step in runner.steps(choice) if step.name == name)


def test_each_choice_runs_its_steps() -> None:
    assert names(Choice()) == names(Choice(all=True)) == [*LINT, UNITS, REST]
    assert names(Choice(fast=True)) == [*LINT, UNITS]
    assert names(Choice(lint=True)) == LINT
    assert names(Choice(unit=True)) == [UNITS]
    assert names(Choice(keyword="x")) == [UNITS, REST]
    assert names(Choice(fast=True, keyword="x")) == [*LINT, UNITS]


def test_long_tests_run_when_all_or_they_themselves_are_chosen() -> None:
    for choice, left_out in ((Choice(), True), (Choice(all=True), False), (Choice(keyword="x"), False)):
        assert ("not long" in argv(choice, REST)) is left_out
    assert argv(Choice(keyword="x y"), REST)[-2:] == ("-k", "x y")


@pytest.mark.parametrize(
    "choice", [Choice(fast=True, all=True), Choice(unit=True, lint=True), Choice(lint=True, keyword="x")]
)
def test_what_contradicts_itself_is_refused(choice: Choice) -> None:
    with pytest.raises(UsageError) as caught:
        runner.run(choice)
    assert caught.value.hint.startswith("./inv test --")


def test_the_command_line_refuses_options_that_do_nothing(inv: Inv) -> None:
    for words in (("--update",), ("--times", "--fast"), ("--fast", "--unit")):
        done = inv("test", *words)
        assert (done.returncode, "Try: " in done.stderr) == (2, True), done.stderr


def test_without_a_run_there_are_no_times(inv: Inv, dist: Path) -> None:
    done = inv("test", "--times")
    assert done.returncode == 4
    assert "Try: ./inv test" in done.stderr


@pytest.fixture
def folder(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two steps that are real pytest runs of three tests, in a folder of their own."""
    for name in ("ensure", "ensure_test", "ensure_export"):
        monkeypatch.setattr(environment, name, lambda *_: None)
    monkeypatch.setattr(ahead, "begun", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(exported, "kept", contextlib.nullcontext)
    own = tmp_path / "own"
    own.mkdir()
    (own / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (own / "test_a.py").write_text(
        "import time, pytest\n@pytest.fixture\ndef slow(): time.sleep(0.3); yield; time.sleep(0.3)\n"
        "def test_waits(slow): pass\n@pytest.mark.parametrize('x', ['a|b'])\ndef test_quick(x): pass\n"
        "@pytest.mark.long\ndef test_long(): raise AssertionError\n"
    )
    monkeypatch.setattr(runner, "ROOT", own)

    def steps(choice: Choice) -> list[Any]:
        return [runner._pytest(name, ["."], choice) for name in (UNITS, REST)]

    monkeypatch.setattr(runner, "steps", steps)
    return dist


def test_a_whole_run_keeps_its_times(folder: Path) -> None:
    runner.run(Choice())
    run = times.load_times(folder / "tests/times.json")
    assert [(step.name, step.outcome) for step in run.steps] == [(UNITS, "passed"), (REST, "passed")]
    assert all(step.seconds > 0.5 for step in run.steps)
    (suite,) = run.suites
    assert (suite.file, suite.tests) == ("test_a.py", 4)
    assert [test.name for test in run.slowest] == ["test_waits", "test_waits", "test_quick[a|b]", "test_quick[a|b]"]
    assert run.slowest[0].seconds >= 0.6, "set-up and tear-down count"


def test_a_part_keeps_none_and_a_failure_is_kept(folder: Path) -> None:
    with pytest.raises(runner.TestsFailedError, match="unit tests"):
        runner.run(Choice(keyword="long"))
    assert not (folder / "tests/times.json").exists()
    with pytest.raises(runner.TestsFailedError, match="unit tests, integration and fault tests"):
        runner.run(Choice(all=True))
    run = times.load_times(folder / "tests/times.json")
    assert [step.outcome for step in run.steps] == ["failed (exit 1)"] * 2
    assert run.suites[0].tests == 6


RUN = Times(
    "2026-01-02T03:04:05+00:00", 2, 0.5,
    (Step(UNITS, "passed", 59.9), Step(REST, "passed", 605.4)),
    (Suite("tests/unit/test_a.py", 3, 61.0, 2.5),),
    (Case("tests/unit/test_a.py", "test_x[a|b]", 7.25, 0.5),),
)  # fmt: skip


def test_the_tables_read_well_and_hold_whatever_a_name_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(times, "KEPT", tmp_path / "kept.json")
    (tmp_path / "kept.json").write_text(json.dumps(asdict(RUN)))
    text = times.markdown()
    assert "on 2 cores took 11:05 min" in text
    assert "| unit tests | passed | 59.9 s |\n| integration and fault tests | passed | 10:05 min |" in text
    assert "| `tests/unit/test_a.py` | 3 | 1:01 min | 2.5 s |" in text
    assert "| `test_a::test_x[a\\|b]` | 7.2 s | 0.5 s |" in text


def test_figures_are_kept_for_the_docs(dist: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(times, "KEPT", tmp_path / "kept.json")
    many = [Case("tests/unit/test_a.py", f"test_{number:03}", float(number)) for number in range(200)]
    times.keep(RUN.steps, many, 1.25)
    times.show(update=True)
    assert times.markdown().startswith("A whole run on ")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [test["name"] for test in kept["slowest"]] == [f"test_{number:03}" for number in range(199, 179, -1)]
    assert (kept["suites"][0]["tests"], kept["processors"]) == (200, os.cpu_count())


@pytest.mark.parametrize(
    ("failing", "hint"),
    [
        (["ruff check", "mypy"], "./inv test --lint"),
        ([UNITS], "./inv test -v -k NAME"),
        (["ruff check", UNITS], "./inv test -v -k NAME"),
    ],
)
def test_the_next_command_fits_what_failed(
    failing: list[str], hint: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(choice: Choice) -> list[runner.Step]:
        return [
            runner.Step(name, (sys.executable, "-c", f"raise SystemExit({int(name in failing)})"))
            for name in (*LINT, UNITS)
        ]

    monkeypatch.setattr(runner, "steps", steps)
    with pytest.raises(runner.TestsFailedError) as caught:
        runner.run(Choice(fast=True))
    assert caught.value.hint == hint
    assert caught.value.what == f"Failed: {', '.join(failing)}."
