"""What ``./inv test`` does: every check in order, each timed, all results in one table at the end."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from commands.own import Test
from core import console, environment
from core.errors import SlipwayError, UsageError
from core.paths import ROOT
from core.processes.commands import quote
from verify.suite import choosing, passed, shared, times
from verify.suite.choosing import Waiting
from verify.suite.passed import Passed


class TestsFailedError(SlipwayError):
    """Some check or test failed."""

    exit_code = 1
    kind = "tests-failed"


@dataclass(frozen=True)
class Step:
    """One check: a name, and the command that performs it.

    ``files`` of tests are left out where they passed before. Steps ``beside`` others run at the same time as they.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[str, ...] = ()
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


def _pytest(name: str, folders: Sequence[str], choice: Test) -> Step:
    options = ["--durations=10", "-q", f"--junit-xml={times.report(name)}"]
    if choice.keyword:
        options += ["-k", choice.keyword]
    elif not choice.all:
        options += ["-m", "not long"]
    return Step(name, _python("pytest", *folders, *options))


def _command(choice: Test) -> str:
    """What was typed."""
    given = [f"--{name}" for name in ("unit", "lint", "fast", "all", "again") if getattr(choice, name)]
    for name in ("shard", "keyword"):
        given += [f"--{name}", getattr(choice, name)] if getattr(choice, name) else []
    return quote(["./inv", "test", *given])


def _side_by_side(step: Step) -> Step:
    # Which worker runs what, and when, is in tests/support/order.py. Each imports all tests, which takes seconds, and
    # unit tests seldom wait. The others do (a machine boots, another test builds): test_cuts.py computes for a quarter
    # of its time.
    workers = (os.cpu_count() or 1) + (1 if step.name == UNITS else 2)
    words = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
    return replace(step, argv=(*step.argv, *words))


def steps(choice: Test) -> list[Step]:
    """The checks, in order."""
    if choice.lint:
        return _lint()
    if choice.shard:
        return _part(choice)
    units = _pytest(UNITS, ["tests/unit"], choice)
    folders = ["tests/integration", "tests/faults"]
    rest = _pytest(REST, folders, choice)
    if not choice.keyword:
        units = _side_by_side(units)
        rest = replace(_side_by_side(rest), files=tuple(_files(*folders)))
    if choice.unit:
        return [units]
    if choice.fast:
        return [*_lint(), units]
    return [units, rest] if choice.keyword else [*_lint(), units, rest]


def _files(*folders: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for one in folders for path in (ROOT / one).glob("test_*.py"))


def _part(choice: Test) -> list[Step]:
    """The checks of one machine of several: ``2/5`` has every fifth file of each kind.

    Raises:
        UsageError: it is not a part of a whole.
    """
    form = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", choice.shard)
    number, count = map(int, form.groups()) if form else (1, 0)
    if number > count:
        raise UsageError(
            f"--shard {choice.shard!r} is not of the form PART/PARTS.", "", "--shard 2/5, the second of five parts"
        )
    found = _lint() if number == 1 else []
    for name, folders in ((UNITS, ("tests/unit",)), (REST, ("tests/integration", "tests/faults"))):
        if files := _files(*folders)[number - 1 :: count]:
            step = _side_by_side(_pytest(name, files, choice))
            found.append(replace(step, files=tuple(files) if name == REST else ()))
    return found


def run(choice: Test) -> None:
    """Run the chosen steps; a failing one does not stop the others.

    Raises:
        TestsFailedError: names the steps that failed.
    """
    inputs = passed.read(ROOT) if choice.whole else None
    planned = [_plan(step, choice, inputs) for step in steps(choice)]
    with contextlib.ExitStack() as stack:
        if any(plan.runs and plan.step.files for plan in planned):
            stack.enter_context(shared.kept())
        _run(choice, inputs, planned)


@dataclass(frozen=True)
class Plan:
    """A step, and the files of its tests that do not run: they passed before, or they wait."""

    step: Step
    known: Mapping[str, Passed]
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def rest(self) -> list[str]:
        """The files that run."""
        return [file for file in self.step.files if file not in self.out]

    @property
    def out(self) -> set[str]:
        """The files that do not."""
        return {*self.known, *self.waiting.never, *self.waiting.later}

    @property
    def runs(self) -> bool:
        """Whether anything is left of it."""
        return not self.step.files or bool(self.rest)

    @property
    def said(self) -> list[str]:
        """What does not run, in words."""
        found = []
        if self.known:
            tests, oldest = sum(one.tests for one in self.known.values()), min(one.ended for one in self.known.values())
            found.append(
                f"{tests:,} tests of {len(self.known)} files passed before with the same inputs, the first of them at "
                f"{oldest}; ./inv test --again runs them again"
            )
        if self.waiting.later:
            found.append(
                f"{len(self.waiting.later)} files of tests whose inputs changed do not fit into this run; the next "
                f"./inv test begins with them, ./inv test --all runs them at once: {_names(self.waiting.later)}"
            )
        if self.waiting.never:
            found.append(
                f"{len(self.waiting.never)} files of tests have not run on this machine yet; ./inv test --all runs them"
            )
        return found


def _names(files: Sequence[str]) -> str:
    return ", ".join(Path(file).stem for file in files)


def _plan(step: Step, choice: Test, inputs: passed.Inputs | None) -> Plan:
    known = passed.before(None if choice.again else inputs, step.files, long=choice.all)
    if choice.all or inputs is None:
        return Plan(step, known)
    return Plan(step, known, choosing.waiting(step.files, inputs.files, set(known)))


def _run(choice: Test, inputs: passed.Inputs | None, planned: Sequence[Plan]) -> None:
    load = os.getloadavg()[0]
    environment.ensure_test()
    if not choice.lint:
        environment.ensure("onnx")
    if any(plan.runs and plan.step.files for plan in planned) or choice.keyword:
        environment.ensure_export()
        environment.ensure("labgrid")
    start = time.monotonic()
    done = _beside([plan.step for plan in planned if plan.step.beside])
    done += [_tests(plan, choice, inputs) for plan in planned if not plan.step.beside]
    console.table("", ["step", "outcome", "time"], [[one.name, one.outcome, f"{one.seconds:.1f} s"] for one in done])
    left = [text for plan in planned for text in plan.said]
    took = time.monotonic() - start
    times.keep(done, times.read(times.report(one.name) for one in done), load, _command(choice), left, took)
    failed = [one.name for one in done if one.outcome.startswith("failed")]
    if failed:
        raise TestsFailedError(f"Failed: {', '.join(failed)}.", "see above", _again(failed), failed)


def _begin(step: Step) -> float:
    console.note(f"── {step.name}: {quote(step.argv[1:8])}{' …' if len(step.argv) > 8 else ''}")
    times.report(step.name).unlink(missing_ok=True)
    return time.monotonic()


def _ended(step: Step, outcome: str, start: float) -> times.Step:
    return times.Step(name=step.name, outcome=outcome, seconds=round(time.monotonic() - start, 1))


def _outcome(code: int, *, none: bool = False) -> str:
    # With -k a folder may hold no matching test at all (pytest's exit 5): that is not a failure.
    return "passed" if code == 0 or (none and code == 5) else f"failed (exit {code})"


def _beside(steps: Sequence[Step]) -> list[times.Step]:
    """Run steps at the same time; what each of them says is shown when it ends."""

    def one(step: Step) -> times.Step:
        start = time.monotonic()
        ran = subprocess.run(step.argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        ended = _ended(step, _outcome(ran.returncode), start)
        with showing:
            _begin(step)
            sys.stdout.write(ran.stdout.decode(errors="replace"))
            sys.stdout.flush()
        return ended

    showing = threading.Lock()
    with ThreadPoolExecutor(len(steps) or 1) as pool:
        return list(pool.map(one, steps))


def _tests(plan: Plan, choice: Test, inputs: passed.Inputs | None) -> times.Step:
    step, start = plan.step, _begin(plan.step)
    for text in plan.said:
        console.note(text)
    if not plan.runs:
        return _ended(step, "passed before", start)
    out = plan.out
    argv = [*(word for word in step.argv if word not in out), *(f"--ignore={file}" for file in sorted(out))]
    with tempfile.TemporaryDirectory(prefix="slipway-loaded-") as loaded:
        env = {**os.environ, "SLIPWAY_LOADED_IN": loaded}
        code = subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode
        passed.learn(Path(loaded), plan.rest)
    if step.files and code in (0, 1):  # 1: some failed; otherwise it did not end
        there = _files("tests/integration", "tests/faults") if choice.shard else step.files
        passed.keep(inputs, times.report(step.name), plan.rest, there, long=choice.all)
    return _ended(step, _outcome(code, none=bool(choice.keyword)), start)


def _again(failed: Sequence[str]) -> str:
    """The next command after these steps failed."""
    checks = {step.name for step in _lint()}
    return "./inv test --lint" if checks.issuperset(failed) else "./inv test -v -k NAME"
