"""What ``./inv test`` runs: the steps of each option, and the files that are near what changed."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from commands.own import Test as Choice
from core import environment
from core.errors import UsageError
from core.files import write_atomic
from core.paths import ROOT
from verify.suite import choosing, runner, shared
from verify.suite.runner import REST, UNITS, Step

STEMS = {file.stem for file in (ROOT / "tests").glob("*/test_*.py")}
LINT = ["ruff check", "ruff format", "mypy", "clang-format", "shellcheck"]


def names(choice: Choice) -> list[str]:
    return [step.name for step in runner.steps(choice)]


def argv(choice: Choice, name: str) -> tuple[str, ...]:
    return next(step.argv for step in runner.steps(choice) if step.name == name)


def _files(part: list[Step], kind: str) -> list[str]:
    return [word for step in part if step.name == kind for word in step.argv if word.endswith(".py")]


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


def test_the_parts_of_a_run_are_all_of_it() -> None:
    parts = [runner.steps(Choice(all=True, shard=f"{number}/3")) for number in (1, 2, 3)]
    assert [[step.name for step in part] for part in parts] == [[*LINT, UNITS, REST], [UNITS, REST], [UNITS, REST]]
    files = {kind: [_files(part, kind) for part in parts] for kind in (UNITS, REST)}
    for each in files.values():
        assert max(map(len, each)) - min(map(len, each)) <= 1
    with pytest.raises(UsageError, match="is not of the form PART/PARTS"):
        runner.steps(Choice(all=True, shard="3/2"))
    there = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(name for each in files.values() for part in each for name in part) == sorted(there)


PROSE = "tests/integration/test_prose.py"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one suite, which proves the folder ``core``, and without a run."""
    for name in ("ensure", "ensure_export"):
        monkeypatch.setattr(environment, name, lambda *_: None)
    monkeypatch.setattr(shared, "kept", contextlib.nullcontext)
    root = tmp_path / "tree"
    for name in ("core/a.py", "docs/page.md", PROSE, "tests/unit/test_b.py"):
        write_atomic(root / name, "")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    for module in (choosing, runner):
        monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(choosing, "WAYS", ())
    monkeypatch.setattr(choosing, "PROVES", {"core": "prose", "deploy": "prose gone"})
    return root


def near() -> list[str]:
    return choosing.chosen(choosing.tree())


def test_what_is_near_a_change_runs_until_everything_has_passed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = 0
    monkeypatch.setattr(runner, "steps", lambda choice, tree: [Step(REST, ("sh", "-c", f"exit {code}"))])
    assert near() == [], "nothing passed here yet"
    runner.run(Choice())
    assert near() == []
    (tree / "docs/page.md").write_text("prose\n")
    assert near() == []
    (tree / "core/a.py").write_text("A = 1\n")
    assert near() == [PROSE]
    code = 1
    with pytest.raises(runner.TestsFailedError, match=REST):
        runner.run(Choice())
    assert near() == [PROSE], "it did not pass"
    code = 0
    runner.run(Choice(fast=True))
    assert near() == [PROSE], "it did not run"
    runner.run(Choice(all=True))
    assert near() == []
    (tree / PROSE).write_text("A = 1\n")
    assert near() == [PROSE], "a suite that changed"
    (tree / PROSE).unlink()
    assert near() == []


def test_the_tables_name_what_is_there() -> None:
    assert [file for file in choosing.WAYS if not (ROOT / file).is_file()] == []
    for folder, names in choosing.PROVES.items():
        assert (ROOT / folder).is_dir(), folder
        assert [name for name in names.split() if f"test_{name}" not in STEMS] == []
