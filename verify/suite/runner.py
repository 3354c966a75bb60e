"""What ``./inv test`` does: every check in order, each timed, all results in one table at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core import console, environment
from core.commands import quote
from core.errors import SlipwayError, UsageError
from core.paths import ROOT
from verify.suite import ahead, exported, passed, times
from verify.suite.passed import Passed


class TestsFailedError(SlipwayError):
    """Some check or test failed."""

    exit_code = 1
    kind = "tests-failed"


@dataclass(frozen=True)
class Step:
    """One check: a name, and the command that performs it. ``files`` of tests are left out where they passed before."""

    name: str
    argv: tuple[str, ...]
    files: tuple[str, ...] = ()


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


def _lint() -> list[Step]:
    cpp = sorted(
        os.fspath(path.relative_to(ROOT))
        for folder in ("bindings", "deploy", "runtime", "recipes", "tests", "verify")
        for pattern in ("*.cpp", "*.h")
        for path in (ROOT / folder).rglob(pattern)
    )
    return [
        Step("ruff check", _python("ruff", "check", ".")),
        Step("ruff format", _python("ruff", "format", "--check", ".")),
        Step("mypy", _python("mypy")),
        Step("clang-format", (str(Path(sys.prefix) / "bin" / "clang-format"), "--dry-run", "-Werror", *cpp)),
        Step("shellcheck", _python("verify.suite.shells")),
    ]


def _pytest(name: str, folders: Sequence[str], choice: Choice) -> Step:
    options = ["--durations=10", "-v" if choice.verbose else "-q"]
    if choice.keyword:
        return Step(name, _python("pytest", *folders, *options, "-k", choice.keyword))
    if not choice.all:
        options += ["-m", "not long"]
    return Step(name, _python("pytest", *folders, *options, f"--junit-xml={times.report(name)}"))


@dataclass(frozen=True)
class Choice:
    """Which checks and tests run; without any of these, what CI runs.

    Attributes:
        unit: unit tests only.
        lint: style and types only.
        fast: both of them, and nothing that builds or boots.
        all: also the tests marked ``long``, and the files of tests that never ran on this machine.
        again: also integration and fault tests that passed before with the same inputs.
        keyword: only tests whose names match; long ones, too.
        verbose: a line for every test.
    """

    unit: bool = False
    lint: bool = False
    fast: bool = False
    all: bool = False
    again: bool = False
    keyword: str = ""
    verbose: bool = False

    def checked(self) -> Choice:
        """This choice.

        Raises:
            UsageError: two of its parts contradict each other.
        """
        chosen = [f"--{name}" for name in ("unit", "lint", "fast", "all") if getattr(self, name)]
        if len(chosen) > 1:
            raise UsageError(
                f"{' and '.join(chosen)} cannot be used together.",
                "each says which tests run",
                f"./inv test {chosen[0]}",
            )
        if self.again and not self.whole:
            raise UsageError(
                "--again goes with a whole run.", "only that leaves out tests that passed before", "./inv test --again"
            )
        if self.lint and self.keyword:
            raise UsageError(
                "--keyword does not go with --lint.",
                "it selects tests, and --lint runs none",
                "./inv test --keyword NAME",
            )
        return self

    @property
    def whole(self) -> bool:
        """Everything runs: builds are worth beginning ahead, and the times worth keeping."""
        return not (self.unit or self.lint or self.fast or self.keyword)


def _side_by_side(step: Step, workers: int) -> Step:
    # Which worker runs what, and when, is in tests/support/order.py.
    words = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
    return replace(step, argv=(*step.argv, *words))


def steps(choice: Choice) -> list[Step]:
    """The checks, in order."""
    if choice.lint:
        return _lint()
    # Much of it waits (a machine boots, a deadline passes, another test builds): test_cuts.py computes for a quarter of
    # its time.
    workers = (os.cpu_count() or 1) + 2
    units = _pytest("unit tests", ["tests/unit"], choice)
    folders = ["tests/integration", "tests/faults"]
    rest = _pytest("integration and fault tests", folders, choice)
    if not choice.keyword:
        units = _side_by_side(units, workers)
        files = sorted(path.relative_to(ROOT).as_posix() for one in folders for path in (ROOT / one).glob("test_*.py"))
        rest = replace(_side_by_side(rest, workers), files=tuple(files))
    if choice.unit:
        return [units]
    if choice.fast:
        return [*_lint(), units]
    return [units, rest] if choice.keyword else [*_lint(), units, rest]


def run(choice: Choice) -> None:
    """Run the chosen steps; a failing one does not stop the others.

    Raises:
        UsageError: the choice contradicts itself.
        TestsFailedError: names the steps that failed.
    """
    choice.checked()
    inputs = passed.read(ROOT) if choice.whole else None
    planned = [_plan(step, choice, inputs) for step in steps(choice)]
    with contextlib.ExitStack() as stack:
        if any(plan.runs and plan.step.files for plan in planned):
            stack.enter_context(exported.kept())
            stack.enter_context(ahead.begun(whole=choice.all))
        _run(choice, inputs, planned)


@dataclass(frozen=True)
class Plan:
    """A step, and the files of its tests that do not run: they passed before, or never ran on this machine."""

    step: Step
    known: Mapping[str, Passed]
    left: Sequence[str] = ()

    @property
    def rest(self) -> list[str]:
        """The files that run."""
        return [file for file in self.step.files if file not in self.known and file not in self.left]

    @property
    def runs(self) -> bool:
        """Whether anything is left of it."""
        return not self.step.files or bool(self.rest)


def _plan(step: Step, choice: Choice, inputs: passed.Inputs | None) -> Plan:
    left = [] if choice.all or inputs is None else passed.left_out(step.files)
    ahead = [file for file in step.files if file not in left]
    return Plan(step, passed.before(None if choice.again else inputs, ahead, long=choice.all), left)


def _run(choice: Choice, inputs: passed.Inputs | None, planned: Sequence[Plan]) -> None:
    load = os.getloadavg()[0]
    environment.ensure_test()
    if not choice.lint:
        environment.ensure("onnx")
    if any(plan.runs and plan.step.files for plan in planned) or choice.keyword:
        environment.ensure_export()
        environment.ensure("labgrid")
    done: list[times.Step] = []
    failed: list[str] = []
    for plan in planned:
        step = plan.step
        console.note(f"── {step.name}: {quote(step.argv[1:8])}{' …' if len(step.argv) > 8 else ''}")
        times.report(step.name).unlink(missing_ok=True)
        start = time.monotonic()
        _say(plan)
        code = 0
        if plan.runs:
            argv = [*step.argv, *(f"--ignore={file}" for file in sorted({*plan.known, *plan.left}))]
            with tempfile.TemporaryDirectory(prefix="slipway-loaded-") as loaded:
                env = {**os.environ, "SLIPWAY_LOADED_IN": loaded}
                code = subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode
                passed.learn(Path(loaded), plan.rest)
        # With -k a folder may hold no matching test at all (pytest's exit 5): that is not a failure.
        good = code == 0 or (bool(choice.keyword) and code == 5)
        outcome = "passed" if good else f"failed (exit {code})"
        if not plan.runs:
            outcome = "passed before"
        failed += [] if good else [step.name]
        done.append(times.Step(step.name, outcome, round(time.monotonic() - start, 1)))
        if step.files and code in (0, 1):  # 1: some failed; otherwise it did not end
            passed.keep(inputs, times.report(step.name), plan.rest, step.files, long=choice.all)
    console.table("", ["step", "outcome", "time"], [[one.name, one.outcome, f"{one.seconds:.1f} s"] for one in done])
    if choice.whole and not any(plan.known or plan.left for plan in planned):
        times.keep(done, times.read(times.report(one.name) for one in done), load)
    if failed:
        raise TestsFailedError(f"Failed: {', '.join(failed)}.", "see above", _again(failed), failed)


def _again(failed: Sequence[str]) -> str:
    """The next command after these steps failed."""
    checks = {step.name for step in _lint()}
    return "./inv test --lint" if checks.issuperset(failed) else "./inv test -v -k NAME"


def _say(plan: Plan) -> None:
    if plan.known:
        tests, oldest = sum(one.tests for one in plan.known.values()), min(one.ended for one in plan.known.values())
        console.note(
            f"{tests:,} tests of {len(plan.known)} files passed before with the same inputs, the first of them at "
            f"{oldest}; ./inv test --again runs them again"
        )
    if plan.left:
        console.note(f"{len(plan.left)} files of tests have not run on this machine yet; ./inv test --all runs them")
