"""What ``./inv test`` runs for each option, and what it keeps of the times."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from core import environment
from core.errors import HostError
from core.paths import ROOT
from tests.support import order
from toolchains.targets import get_target
from verify.suite import ahead, exported, runner, shards, times
from verify.suite.runner import REST, UNITS, Choice

QUICK = tuple(word for name in ("hypothesispytest", "xdist", "labgrid") for word in ("-p", f"no:{name}"))
"""Options against plugins that take a second to load."""
FILES = {file.stem for file in (ROOT / "tests").glob("*/test_*.py")}
LINT = ["ruff check", "ruff format", "mypy", "clang-format", "shellcheck"]


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
    for choice, left_out in ((Choice(), True), (Choice(all=True), False), (Choice(keyword="x"), False)):
        assert ("not long" in argv(choice, REST)) is left_out
    assert argv(Choice(keyword="x y"), REST)[-2:] == ("-k", "x y")


@pytest.fixture
def folder(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step that is a real pytest run of three tests, in a folder of their own."""
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
        step = runner._pytest(REST, ["."], choice)
        return [runner.Step(REST, (*step.argv, *QUICK))]

    monkeypatch.setattr(runner, "steps", steps)
    return dist


def test_a_run_keeps_its_times_and_those_of_the_last_whole_one_stay(folder: Path, empty_tables: None) -> None:
    runner.run(Choice())
    run = times.load_times(folder / "tests/times.json")
    assert [(step.name, step.outcome) for step in run.steps] == [(REST, "passed")]
    assert run.steps[0].seconds > 0.5
    (suite,) = run.suites
    assert (suite.file, suite.tests, run.command) == ("test_a.py", 2, "./inv test")
    assert [test.name for test in run.slowest] == ["test_waits", "test_quick[a|b]"]
    assert run.slowest[0].seconds >= 0.6, "set-up and tear-down count"
    with pytest.raises(HostError, match="No run of all the tests") as caught:
        times.show(update=True)
    assert caught.value.hint == "./inv test --all --again"
    for choice in (Choice(all=True), Choice(keyword="long")):
        with pytest.raises(runner.TestsFailedError, match=REST):
            runner.run(choice)
    last, whole = (times.load_times(folder / "tests" / name) for name in ("times.json", "times-all.json"))
    assert (last.command, last.suites[0].tests) == ("./inv test --keyword long", 1)
    assert (whole.command, whole.suites[0].tests, whole.steps[0].outcome) == ("./inv test --all", 3, "failed (exit 1)")
    times.show(update=True)
    assert whole.ended in times.TIMES.text()


@pytest.mark.parametrize("count", [1, 2, 6])
def test_each_file_is_in_one_part_and_the_parts_are_balanced(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {f"tests/integration/test_{number}.py": 10.0 * number for number in range(1, 30)}
    monkeypatch.setattr(times, "seconds", lambda: kept)
    files = [*kept, "tests/unit/test_new.py", "tests/faults/test_new.py"]
    parts = [shards.part(files, number, count) for number in range(1, count + 1)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    loads = [sum(kept.get(file, 30.0) for file in part) for part in parts]
    assert max(loads) - min(loads) < 40.0
    assert parts == [shards.part(files[::-1], number, count) for number in range(1, count + 1)]


def test_the_parts_of_a_run_are_all_of_it() -> None:
    parts = [runner.steps(Choice(all=True, shard=f"{number}/3")) for number in (1, 2, 3)]
    assert [[step.name for step in part] for part in parts] == [[*LINT, UNITS, REST], [UNITS, REST], [UNITS, REST]]
    given = [word for part in parts for step in part for word in step.argv if word.endswith(".py")]
    there = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(given) == sorted(there)
    assert [step.files for part in parts for step in part if step.name != REST and step.files] == []


def test_every_name_is_a_files_and_what_is_built_is_offered() -> None:
    named = [*order.FIRST, *order.LAST]
    assert len(set(named)) == len(named)
    assert {name.partition("[")[0] for name in (*named, *order.APART, *order.BY_PARAMETER)} <= FILES
    for name in named:
        assert ("[" in name) == (name.partition("[")[0] in order.BY_PARAMETER)
    assert len(set(ahead.PRODUCTS)) == len(ahead.PRODUCTS)
    for name, engine in ahead.PRODUCTS:
        assert engine == "native" or get_target(name).engine(engine) == engine
