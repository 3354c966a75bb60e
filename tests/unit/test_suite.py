"""What ``./inv test`` runs for each option."""

from __future__ import annotations

import pytest

from core.paths import ROOT
from tests.support import order
from toolchains.targets import get_target
from verify.suite import ahead, runner, shards
from verify.suite.runner import REST, UNITS, Choice

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


@pytest.mark.parametrize("count", [1, 2, 6])
def test_each_file_is_in_one_part_and_the_parts_are_balanced(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MINUTES", {str(number): number for number in range(1, 30)})
    files = [f"tests/integration/test_{number}.py" for number in range(1, 30)]
    files += ["tests/unit/test_new.py", "tests/faults/test_new.py"]
    parts = [shards.part(files, number, count) for number in range(1, count + 1)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    loads = [sum(map(shards._minutes, part)) for part in parts]
    assert max(loads) - min(loads) < 5
    assert parts == [shards.part(files[::-1], number, count) for number in range(1, count + 1)]


def test_the_parts_of_a_run_are_all_of_it() -> None:
    parts = [runner.steps(Choice(all=True, shard=f"{number}/3")) for number in (1, 2, 3)]
    assert [[step.name for step in part] for part in parts] == [[*LINT, UNITS, REST], [UNITS, REST], [UNITS, REST]]
    given = [word for part in parts for step in part for word in step.argv if word.endswith(".py")]
    there = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(given) == sorted(there)
    assert [step.files for part in parts for step in part if step.name != REST and step.files] == []
    assert {f"test_{name}" for name in shards.MINUTES} <= FILES


def test_every_name_is_a_files_and_what_is_built_is_offered() -> None:
    named = [*order.FIRST, *order.LAST]
    assert len(set(named)) == len(named)
    assert {name.partition("[")[0] for name in (*named, *order.APART, *order.BY_PARAMETER)} <= FILES
    for name in named:
        assert ("[" in name) == (name.partition("[")[0] in order.BY_PARAMETER)
    assert len(set(ahead.PRODUCTS)) == len(ahead.PRODUCTS)
    for name, engine in ahead.PRODUCTS:
        assert engine == "native" or get_target(name).engine(engine) == engine
