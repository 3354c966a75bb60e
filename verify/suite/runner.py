"""What ``./inv test`` does: every check in order, each timed, all results in one table at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from commands.own import Test
from core import console, environment
from core.errors import SlipwayError
from core.paths import ROOT
from core.processes.commands import quote
from deploy.matrix.plan import parse_shard
from verify.suite import choosing, shared


class TestsFailedError(SlipwayError):
    """Some check or test failed."""

    exit_code = 1
    kind = "tests-failed"


@dataclass(frozen=True)
class Step:
    """One check: a name, and the command that performs it. Those ``beside`` others run at the same time as they."""

    name: str
    argv: tuple[str, ...]
    beside: bool = False


UNITS, REST = "unit tests", "integration and fault tests"


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


def _lint() -> list[Step]:
    cpp = sorted(
        os.fspath(path.relative_to(ROOT))
        for folder in ("deploy", "runtime", "recipes", "tests", "verify")
        for pattern in ("*.cpp", "*.h")
        for path in (ROOT / folder).rglob(pattern)
    )
    checks = {
        "ruff check": _python("ruff", "check", "."),
        "ruff format": _python("ruff", "format", "--check", "."),
        "mypy": _python("mypy"),
        "clang-format": (
            str(Path(sys.prefix) / "bin" / "clang-format"),
            "--style=file:runtime/.clang-format",
            "--dry-run",
            "-Werror",
            *cpp,
        ),
        "shellcheck": _python("verify.suite.shells"),
    }
    return [Step(name, argv, beside=True) for name, argv in checks.items()]


def _pytest(name: str, files: Sequence[str], choice: Test) -> Step:
    words = [*files, "--durations=10", "-q"]
    if choice.keyword:
        words += ["-k", choice.keyword]
    else:
        # Which worker runs what, and when, is in tests/support/order.py. Each imports all tests, which takes seconds,
        # and unit tests seldom wait. The others do (a machine boots, another test builds): test_cuts.py computes for a
        # quarter of its time.
        workers = (os.cpu_count() or 1) + (1 if name == UNITS else 2)
        words += ["-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder"]
        words += [] if choice.all else ["-m", "not long"]
    return Step(name, _python("pytest", *words))


def _files(*folders: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for one in folders for path in (ROOT / one).glob("test_*.py"))


def steps(choice: Test, tree: str = "") -> list[Step]:
    """The checks, in order; ``tree``: of the checkout, as `choosing.tree` names it."""
    if choice.lint:
        return _lint()
    number, count = parse_shard(choice.shard)
    everything = choice.all or choice.keyword
    rest = _files("tests/integration", "tests/faults") if everything else choosing.chosen(tree)
    found = _lint() if choice.fast or not (choice.unit or choice.keyword or number > 1) else []
    for name, files in ((UNITS, _files("tests/unit")), (REST, rest)):
        part = files[number - 1 :: count]
        if part and (name == UNITS or not (choice.unit or choice.fast)):
            found.append(_pytest(name, part, choice))
    return found


def run(choice: Test) -> None:
    """Run the chosen steps; a failing one does not stop the others.

    Raises:
        TestsFailedError: names the steps that failed.
    """
    tree = choosing.tree() if choice.whole else ""
    planned = steps(choice, tree)
    environment.ensure("test")
    if not choice.lint:
        environment.ensure("onnx")
    with contextlib.ExitStack() as stack:
        if any(step.name == REST for step in planned):
            environment.ensure_export()
            environment.ensure("labgrid")
            stack.enter_context(shared.kept())
        done = _beside([step for step in planned if step.beside])
        done += [_tests(step, choice) for step in planned if not step.beside]
    console.table("", ["step", "outcome", "time"], [[step.name, outcome, took] for step, outcome, took in done])
    if failed := [step.name for step, outcome, _ in done if outcome != "passed"]:
        again = "./inv test --lint" if {step.name for step in _lint()}.issuperset(failed) else "./inv test -v -k NAME"
        raise TestsFailedError(f"Failed: {', '.join(failed)}.", "see above", again, failed)
    if tree and not choice.shard:
        choosing.keep(tree)


Ended = tuple[Step, str, str]
"""A step, its outcome, and how long it took."""


def _begin(step: Step) -> float:
    console.note(f"── {step.name}: {quote(step.argv[1:8])}{' …' if len(step.argv) > 8 else ''}")
    return time.monotonic()


def _ended(step: Step, code: int, start: float, *, none: bool = False) -> Ended:
    # With -k a folder may hold no matching test at all (pytest's exit 5): that is not a failure.
    outcome = "passed" if code == 0 or (none and code == 5) else f"failed (exit {code})"
    return step, outcome, f"{time.monotonic() - start:.1f} s"


def _beside(steps: Sequence[Step]) -> list[Ended]:
    """Run steps at the same time; what each of them says is shown when it ends."""

    def one(step: Step) -> Ended:
        start = time.monotonic()
        ran = subprocess.run(step.argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        ended = _ended(step, ran.returncode, start)
        with showing:
            _begin(step)
            sys.stdout.write(ran.stdout.decode(errors="replace"))
            sys.stdout.flush()
        return ended

    showing = threading.Lock()
    with ThreadPoolExecutor(len(steps) or 1) as pool:
        return list(pool.map(one, steps))


def _tests(step: Step, choice: Test) -> Ended:
    start = _begin(step)
    code = subprocess.run(step.argv, cwd=ROOT, check=False).returncode
    return _ended(step, code, start, none=bool(choice.keyword))
