"""What ``./inv test`` does: every check in order, each timed, all results in one table at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core import console, environment
from core.commands import quote
from core.errors import SlipwayError
from core.paths import ROOT
from verify.suite import ahead, exported


class TestsFailedError(SlipwayError):
    """Some check or test failed."""

    exit_code = 1
    kind = "tests-failed"


@dataclass(frozen=True)
class Step:
    """One check: a name, and the command that performs it."""

    name: str
    argv: tuple[str, ...]


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


def _lint() -> list[Step]:
    cpp = sorted(
        os.fspath(path.relative_to(ROOT))
        for folder in ("runtime", "recipes", "tests")
        for pattern in ("*.cpp", "*.h")
        for path in (ROOT / folder).rglob(pattern)
    )
    return [
        Step("ruff check", _python("ruff", "check", ".")),
        Step("ruff format", _python("ruff", "format", "--check", ".")),
        Step("mypy", _python("mypy")),
        Step("clang-format", (str(Path(sys.prefix) / "bin" / "clang-format"), "--dry-run", "-Werror", *cpp)),
    ]


def _pytest(name: str, folders: Sequence[str], keyword: str, verbose: bool) -> Step:
    options = ["--durations=10", "-v" if verbose else "-q"]
    if keyword:
        options += ["-k", keyword]
    return Step(name, _python("pytest", *folders, *options))


def _steps(unit: bool, lint: bool, keyword: str, verbose: bool) -> list[Step]:
    units = _pytest("unit tests", ["tests/unit"], keyword, verbose)
    if lint:
        return _lint()
    if unit:
        return [units]
    rest = _pytest("integration and fault tests", ["tests/integration", "tests/faults"], keyword, verbose)
    if not keyword:
        processors = os.cpu_count() or 1
        units = replace(units, argv=(*units.argv, "-n", str(processors)))
        # Much of it waits (a machine boots, a deadline passes, another test builds), so there is a worker more than
        # processors. Which of them runs what, and when, is in tests/support/order.py.
        workers = str(processors + 1)
        rest = replace(rest, argv=(*rest.argv, "-n", workers, "--dist", "loadscope", "--no-loadscope-reorder"))
    return [units, rest] if keyword else [*_lint(), units, rest]


def run(*, unit: bool, lint: bool, keyword: str, verbose: bool) -> None:
    """Run the chosen steps; a failing one does not stop the others.

    Raises:
        TestsFailedError: names the steps that failed.
    """
    with contextlib.ExitStack() as stack:
        if not (unit or lint or keyword):
            stack.enter_context(exported.kept())
            stack.enter_context(ahead.begun())
        _run(unit, lint, keyword, verbose)


def _run(unit: bool, lint: bool, keyword: str, verbose: bool) -> None:
    environment.ensure_test()
    if not lint:
        environment.ensure("onnx")
    if not (unit or lint):
        environment.ensure_export()
        environment.ensure("labgrid")
    rows: list[list[str]] = []
    failed: list[str] = []
    for step in _steps(unit, lint, keyword, verbose):
        console.note(f"── {step.name}: {quote(step.argv[1:8])}{' …' if len(step.argv) > 8 else ''}")
        start = time.monotonic()
        code = subprocess.run(step.argv, cwd=ROOT, check=False).returncode
        # With -k a folder may hold no matching test at all (pytest's exit 5): that is no failure of it.
        good = code == 0 or (bool(keyword) and code == 5)
        rows.append([step.name, "passed" if good else f"failed (exit {code})", f"{time.monotonic() - start:.1f} s"])
        if not good:
            failed.append(step.name)
    console.table("", ["step", "outcome", "time"], rows)
    if failed:
        raise TestsFailedError(f"Failed: {', '.join(failed)}.", "see above", "./inv test -v -k NAME", failed)
