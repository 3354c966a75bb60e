"""What ``./inv test`` runs for each option, and what it keeps of the times."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from core import environment
from core.errors import HostError, UsageError
from core.paths import ROOT
from tests.conftest import Inv
from tests.support import order
from toolchains.targets import get_target
from verify.suite import ahead, exported, runner, shards, times
from verify.suite.runner import REST, UNITS, Choice
from verify.suite.times import Case, Step, Suite, Times

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


@pytest.mark.parametrize(
    "choice",
    [
        Choice(fast=True, all=True), Choice(unit=True, lint=True), Choice(lint=True, keyword="x"), Choice(shard="1/2"),
        Choice(all=True, shard="1/2", keyword="x"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(choice: Choice) -> None:
    with pytest.raises(UsageError) as caught:
        runner.run(choice)
    assert caught.value.hint.startswith("./inv test --")


def test_the_command_line_refuses_options_that_do_nothing(inv: Inv, dist: Path) -> None:
    for words in (("--update",), ("--times", "--fast"), ("--all", "--shard", "3/2")):
        done = inv("test", *words)
        assert (done.returncode, "Try: " in done.stderr) == (2, True), done.stderr
    done = inv("test", "--times")
    assert done.returncode == 4
    assert "Try: ./inv test" in done.stderr


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


def test_what_a_run_left_out_is_said(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times.keep(RUN.steps, [], 0.5, "./inv test --all", ["3 files of tests"], 659.0)
    times.show(update=False)
    said = " ".join(capsys.readouterr().err.split())
    assert "./inv test --all took 10:59 min" in said, "side by side"
    assert "left out: 3 files of tests" in said
    assert not (dist / "tests/times-all.json").exists()


RUN = Times(
    "2026-01-02T03:04:05+00:00", 2, 0.5,
    (Step(UNITS, "passed", 59.9), Step(REST, "passed", 605.4)),
    (Suite("tests/unit/test_a.py", 3, 61.0, 2.5),),
    (Case("tests/unit/test_a.py", "test_x[a|b]", 7.25, 0.5),),
)  # fmt: skip


def test_figures_are_kept_for_the_docs(dist: Path, empty_tables: None) -> None:
    many = [Case("tests/unit/test_a.py", f"test_{number:03}[a|b]", float(number)) for number in range(200)]
    times.keep(RUN.steps, many, 1.25, "./inv test --all", took=665.0)
    times.show(update=True)
    text = times.TIMES.text()
    assert f"on {os.cpu_count()} cores took 11:05 min" in text
    assert "| unit tests | passed | 59.9 s |\n| integration and fault tests | passed | 10:05 min |" in text
    slowest = [line.split("`")[1] for line in text.splitlines() if "::" in line]
    assert slowest == [f"test_a::test_{number:03}[a\\|b]" for number in range(199, 179, -1)]
    assert times.SUITES.rows()[0]["tests"] == "200"
    assert times.seconds() == {"tests/unit/test_a.py": 19900.0}


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


def test_checks_run_side_by_side(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits for a file that the other makes; what they print does not mix."""
    code = (
        "import pathlib, sys, time\n_, own, other, code = sys.argv\nprint(own)\npathlib.Path(own).touch()\n"
        "end = time.monotonic() + 60\nwhile not pathlib.Path(other).exists():\n    time.sleep(0.01)\n"
        "    assert time.monotonic() < end\nprint(own, flush=True)\nsys.exit(int(code))\n"
    )
    words = (("a", "b", "0"), ("b", "a", "5"))
    ran = runner._beside([runner.Step(one[0], (sys.executable, "-Sc", code, *one), beside=True) for one in words])
    assert [step.outcome for step in ran] == ["passed", "failed (exit 5)"]
    assert capfd.readouterr().out.split() in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


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


def test_every_name_is_a_files_and_what_is_built_is_offered() -> None:
    named = [*order.FIRST, *order.LAST]
    assert len(set(named)) == len(named)
    assert {name.partition("[")[0] for name in (*named, *order.APART, *order.BY_PARAMETER)} <= FILES
    for name in named:
        assert ("[" in name) == (name.partition("[")[0] in order.BY_PARAMETER)
    assert len(set(ahead.PRODUCTS)) == len(ahead.PRODUCTS)
    for name, engine in ahead.PRODUCTS:
        assert engine == "native" or get_target(name).engine(engine) == engine


def test_files_stay_together_long_ones_come_first() -> None:
    (name,) = order.BY_PARAMETER
    file = f"tests/integration/{name}.py"
    assert order.unit(f"{file}::test_a[pi3]") == order.unit(f"{file}::test_b[pi3]") != order.unit(f"{file}::test_b[pi]")
    nodes = [f"{file}::test_it[{machine}]" for machine in ("pi-zero", "pi3", "phone-armv7")]
    assert sorted((nodes[1], nodes[2], nodes[0]), key=order.rank) == nodes
    nodes = [f"tests/integration/{name}.py::test_it[x::y]" for name in ("test_selective", "test_build", "test_zoo")]
    assert sorted(nodes, key=order.rank) == nodes[::-1]
    zoo = "tests/integration/test_zoo.py"
    assert order.unit(f"{zoo}::test_a[mlp::x]") == order.unit(f"{zoo}::test_b") == zoo
    (apart,) = order.APART
    assert order.unit(f"tests/integration/{apart}.py::test_a[1]") != order.unit(
        f"tests/integration/{apart}.py::test_a[2]"
    )
