"""What ``./inv test`` runs: the steps of each option, what a change can break, what passed before; and its times."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands.own import Test as Choice
from core import environment
from core.errors import HostError, UsageError
from core.files import write_atomic
from core.paths import ROOT
from verify import rooms
from verify.suite import choosing, passed, runner, shared, times
from verify.suite.runner import REST, UNITS

STEMS = {file.stem for file in (ROOT / "tests").glob("*/test_*.py")}
QUICK = tuple(word for name in ("hypothesispytest", "xdist", "labgrid") for word in ("-p", f"no:{name}"))
"""Options against plugins that take a second to load."""
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
    monkeypatch.setattr(shared, "kept", contextlib.nullcontext)
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


def test_a_run_keeps_its_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HostError, match="No run of the tests") as caught:
        times.show()
    assert caught.value.hint == "./inv test"
    runner.run(Choice())
    run = times.load_times(folder / "tests/times.json")
    assert [(step.name, step.outcome) for step in run.steps] == [(REST, "passed")]
    assert run.steps[0].seconds > 0.5
    (suite,) = run.suites
    assert (suite.file, suite.tests, run.command) == ("test_a.py", 2, "./inv test")
    assert [test.name for test in run.slowest] == ["test_waits", "test_quick[a|b]"]
    assert run.slowest[0].seconds >= 0.6, "set-up and tear-down count"
    with pytest.raises(runner.TestsFailedError, match=REST):
        runner.run(Choice(keyword="long"))
    capsys.readouterr()
    times.show()
    said = capsys.readouterr()
    assert "./inv test --keyword long took" in said.err and "test_a::test_long" in said.out


def test_the_parts_of_a_run_are_all_of_it() -> None:
    parts = [runner.steps(Choice(all=True, shard=f"{number}/3")) for number in (1, 2, 3)]
    assert [[step.name for step in part] for part in parts] == [[*LINT, UNITS, REST], [UNITS, REST], [UNITS, REST]]
    for kind in (UNITS, REST):
        counts = [
            len([word for word in step.argv if word.endswith(".py")])
            for part in parts
            for step in part
            if step.name == kind
        ]
        assert max(counts) - min(counts) <= 1
    with pytest.raises(UsageError, match="is not of the form PART/PARTS"):
        runner.steps(Choice(all=True, shard="3/2"))
    given = [word for part in parts for step in part for word in step.argv if word.endswith(".py")]
    there = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(given) == sorted(there)
    assert [step.files for part in parts for step in part if step.name != REST and step.files] == []


FILES = {
    "core/a.py": "A = 1\n",
    "docs/page.md": "prose\n",
    "README.md": "prose\n",
    "tests/support/help.py": "H = 1\n",
    "tests/integration/test_a.py": "from core.a import A\ndef test_a(): assert A\n",
    "tests/integration/test_b.py": "from tests.integration.test_a import A\ndef test_b(): assert A\n",
    "tests/integration/test_prose.py": "TEXT = 'docs'\ndef test_c(): pass\n",
}
A, B, PROSE = (f"tests/integration/test_{name}.py" for name in ("a", "b", "prose"))
ALL = (A, B, PROSE)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with three files of tests, and an empty cache."""
    root = tmp_path / "tree"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / ".gitignore").write_text("/dist/\n__pycache__/\n")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = long\npythonpath = .\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    monkeypatch.setattr(rooms, "ROOT", root)
    yield root
    forget()


def forget() -> None:
    """Forget the modules of another checkout, or of this one before a change."""
    for known in (rooms.modules, rooms.imports, rooms.ours):
        known.cache_clear()


def digests(root: Path) -> dict[str, str]:
    forget()
    inputs = passed.Inputs(root)
    return {file: inputs.digest(file, long=False) for file in ALL}


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda root: (root / "core/a.py").write_text("A = 2\n"), (A, B)),
        (lambda root: (root / "core/a.py").chmod(0o755), (A, B)),
        (lambda root: (root / "core/new.c").write_text(""), (A, B)),
        (lambda root: (root / "core/a.py").unlink(), (A, B)),
        (lambda root: (root / "models.toml").write_text(""), ALL),
        (lambda root: (root / "recipes").mkdir() or (root / "recipes/new.yml").write_text(""), ALL),
        (lambda root: (root / "tests/support/help.py").write_text("H = 2\n"), ()),
        (lambda root: (root / "link").symlink_to("core"), ALL),
        (lambda root: (root / A).write_text("from core.a import A\n"), (A, B)),
        (lambda root: (root / B).write_text("B = 1\n"), (B,)),
        (lambda root: (root / "tests/integration/test_new.py").write_text(""), ()),
        (lambda root: (root / "docs/figures.json").write_text("{}\n"), (PROSE,)),
        (lambda root: (root / "docs/page.md").write_text("more prose\n"), (PROSE,)),
        (lambda root: (root / "README.md").write_text("more prose\n"), (PROSE,)),
        (lambda root: (root / "dist").mkdir() or (root / "dist/made").write_text(""), ()),
    ],
    ids=[
        "code", "mode", "new", "deleted", "top", "recipe", "support", "link", "imported test", "test", "other test",
        "figures", "page", "readme", "ignored",
    ],
)  # fmt: skip
def test_a_change_counts_for_the_files_that_depend_on_it(tree: Path, change: Change, expected: tuple[str, ...]) -> None:
    before = digests(tree)
    change(tree)
    after = digests(tree)
    assert tuple(file for file in ALL if before[file] != after[file]) == expected


@pytest.fixture
def whole(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs the suite of `tree`; gives the files that ran."""
    for name in ("ensure", "ensure_test", "ensure_export"):
        monkeypatch.setattr(environment, name, lambda *_: None)
    monkeypatch.setattr(choosing, "WAYS", ALL)
    monkeypatch.setattr(shared, "kept", contextlib.nullcontext)
    monkeypatch.setenv("SLIPWAY_DIST", str(tree / "dist"))
    monkeypatch.setattr(runner, "ROOT", tree)

    def steps(choice: Choice) -> list[runner.Step]:
        step = runner._pytest(runner.REST, ALL, choice)
        return [replace(step, files=ALL)]

    monkeypatch.setattr(runner, "steps", steps)
    start = subprocess.run

    def quick(argv: Sequence[str], **options: Any) -> object:
        """Do what pytest would do with these files: its start takes a second, and there are thirty of them."""
        if "pytest" not in argv:
            return start(argv, **options)
        report, code = "", 0
        for file in (file for file in ALL if file in argv):  # one that is named runs, whatever is ignored
            classname = file.removesuffix(".py").replace("/", ".")
            for name, said in re.findall(r"def (test_\w+)\(\): (.+)", (tree / file).read_text(encoding="utf-8")):
                code |= said == "assert 0"
                result = "<failure/>" if said == "assert 0" else ""
                report += f'<testcase classname="{classname}" name="{name}">{result}</testcase>'
        write_atomic(times.report(runner.REST), f"<testsuites><testsuite>{report}</testsuite></testsuites>")
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", quick)
    from junitparser import JUnitXml

    def run(*, again: bool = False, long: bool = False) -> list[str]:
        report = times.report(runner.REST)
        forget()
        with contextlib.suppress(runner.TestsFailedError):
            runner.run(Choice(again=again, all=long))
        if not report.is_file():
            return []
        names = {case.classname or "" for suite in JUnitXml.fromfile(str(report)) for case in suite}
        return sorted(name.rpartition(".")[2] for name in names - {""})

    return run


def test_what_passed_does_not_run_again(
    tree: Path, whole: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert whole() == ["test_a", "test_b", "test_prose"]
    capsys.readouterr()
    assert whole() == []
    assert "3 tests of 3 files passed before with the same inputs" in capsys.readouterr().err
    assert whole(again=True) == ["test_a", "test_b", "test_prose"]
    assert whole(long=True) == ["test_a", "test_b", "test_prose"], "tests that CI leaves out did not run"
    (tree / B).write_text("def test_b(): pass\n")
    assert whole() == ["test_b"]


def test_what_is_near_a_change_comes_first_and_the_rest_stays_within_its_time(
    tree: Path, whole: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "WAYS", (A,))
    monkeypatch.setattr(choosing, "PROVES", {"core": "prose"})
    assert whole() == ["test_a"]
    (tree / "core/a.py").write_text("A = 2\n")
    (tree / "tests/integration/test_prose.py").write_text("import core.a\ndef test_c(): assert 0\n")
    assert whole() == ["test_a", "test_prose"], "it never ran, and proves the folder that changed"
    assert whole() == ["test_prose"], "it failed"
    (tree / "tests/integration/test_prose.py").write_text("import core.a\ndef test_c(): pass\n")
    assert whole(long=True) == ["test_a", "test_b", "test_prose"]
    (tree / "core/a.py").write_text("A = 3\n")
    monkeypatch.setattr(choosing, "BUDGET", 0)
    capsys.readouterr()
    assert whole() == ["test_a", "test_prose"]
    assert "1 files of tests whose inputs changed do not fit into this run" in capsys.readouterr().err
    monkeypatch.setattr(choosing, "BUDGET", 480)
    assert whole() == ["test_b"]


def test_what_its_commands_loaded_counts_too(tree: Path) -> None:
    (tree / "models").mkdir()
    (tree / "models/far.py").write_text("F = 1\n")
    before = digests(tree)
    said = tree / "dist/said"
    said.mkdir(parents=True)
    (said / A.replace("/", "-")).write_text("models.far\nos.path\n")
    passed.learn(said, ALL)
    (tree / "models/far.py").write_text("F = 2\n")
    assert [file for file, digest in digests(tree).items() if before[file] != digest] == [A]


FOLDERS = ("tests/integration/", "tests/faults/")


@functools.cache
def checkout() -> passed.Inputs:
    return passed.Inputs(ROOT)


@functools.cache
def needs(name: str) -> set[str]:
    file = next(one for one in checkout().files if one.startswith(FOLDERS) and one.endswith(f"/test_{name}.py"))
    return checkout().needs(file)


@pytest.mark.parametrize(
    ("changed", "run", "not_run"),
    [
        ("deploy/transport/ssh/auth.py", ("deploy_pi", "cuts", "ssh_ways", "windows_device"), ("lean_operators",)),
        ("deploy/virtual/virtual.toml", ("deploy_pi", "virtual_machines", "labgrid"), ("recipes",)),
        ("deploy/scripts/probe.sh", ("deploy_pi", "deploy_local", "userlands"), ("recipes",)),
        ("deploy/run/preflight.py", ("deploy_local", "deploy_pi", "matrix"), ("recipes",)),
        ("models/lowering/lowering.py", ("export",), ("recipes", "userlands")),
        ("runtime/runner/main.cpp", ("runner", "deploy_local", "deploy_pi", "libslipway"), ("userlands",)),
        ("toolchains/compilers/zig_wrapper.sh", ("build", "toolchain", "deploy_pi"), ()),
        ("docs/deploy.md", ("readme", "pages"), ("lean_operators",)),
        ("recipes/xnnpack/config.yml", ("recipes", "userlands", "pages"), ()),
        ("locks/core.txt", ("inv", "userlands"), ()),
        ("tests/support/lab.py", ("labgrid",), ("runner",)),
    ],
)
def test_a_change_runs_what_it_can_break(changed: str, run: tuple[str, ...], not_run: tuple[str, ...]) -> None:
    assert changed in checkout().files
    assert [name for name in run if changed not in needs(name)] == []
    assert [name for name in not_run if changed in needs(name)] == []


def test_the_tables_name_what_is_there_and_what_depends_on_everything() -> None:
    for file in passed.ALL:
        assert checkout().needs(file) == set(checkout().files)
    assert {*choosing.WAYS, *passed.ALL} <= checkout().files.keys()


def test_each_folder_of_the_table_is_there_with_what_proves_it() -> None:
    for folder, names in choosing.PROVES.items():
        assert (ROOT / folder).is_dir(), folder
        assert [name for name in names.split() if f"test_{name}" not in STEMS] == []
