"""Which files of tests a run leaves out: those that passed before, and whose inputs are the same."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core import environment
from core.files import write_atomic
from verify.suite import ahead, choosing, exported, passed, runner, times
from verify.suite.runner import Choice

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
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with three files of tests, and an empty cache."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "tree"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / ".gitignore").write_text("/dist/\n__pycache__/\n")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = long\npythonpath = .\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def digests(root: Path) -> dict[str, str]:
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
    monkeypatch.setattr(ahead, "begun", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(choosing, "WAYS", ALL)
    monkeypatch.setattr(exported, "kept", contextlib.nullcontext)
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
            text = (tree / file).read_text(encoding="utf-8")
            for name, said in re.findall(r"def (test_\w+)\(\): (.+)", text):
                code = 2 if "KeyboardInterrupt" in said else 1 if said == "assert 0" else code
                if code < 2:
                    result = "<failure/>" if said == "assert 0" else "<skipped/>" if "mark.skip" in text else ""
                    classname = file.removesuffix(".py").replace("/", ".")
                    report += f'<testcase classname="{classname}" name="{name}">{result}</testcase>'
            if "__file__" in text:
                (tree / file).write_text(text + "#", encoding="utf-8")
        write_atomic(times.report(runner.REST), f"<testsuites><testsuite>{report}</testsuite></testsuites>")
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", quick)
    from junitparser import JUnitXml

    def run(*, again: bool = False, long: bool = False) -> list[str]:
        report = times.report(runner.REST)
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
    (tree / "core/far.py").write_text("F = 1\n")
    before = digests(tree)
    (tree / "said").mkdir()
    (tree / "said" / A.replace("/", "-")).write_text("core.far\nos.path\n")
    passed.learn(tree / "said", ALL)
    (tree / "core/far.py").write_text("F = 2\n")
    assert [file for file, digest in digests(tree).items() if before[file] != digest] == [A]


def test_what_failed_runs_again_and_the_others_do_not(tree: Path, whole: Callable[..., list[str]]) -> None:
    (tree / B).write_text("import pytest\ndef test_b(): assert 0\ndef test_d(): pass\n")
    assert whole() == ["test_a", "test_b", "test_prose"]
    assert whole() == ["test_b"]
    (tree / B).write_text("import pytest\n@pytest.mark.skip\ndef test_b(): pass\n")
    assert whole() == ["test_b"]
    assert whole() == ["test_b"], "a skipped test did not pass"
