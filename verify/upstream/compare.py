"""``./inv self.agree --sound``: run the programs of upstream's own tests and ours on the lean engine, and compare.

It is a sweep (`core.processes.sweep`). ``--update`` puts what it came to into the tables of ``docs/proofs.md``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from core import console
from core.errors import MismatchError, UsageError
from core.files import sha256_bytes, sha256_file
from core.formats.program import Tolerance
from core.processes import sweep
from core.processes.sweep import Journal
from deploy.run.needs import complex_only
from verify.agree.kept import INFINITE, Cell, Column, cell_name, publish, rows, summarize
from verify.agree.look import Executor, execute, look
from verify.agree.programs import About, Compared
from verify.upstream import exact as upstream_exact
from verify.upstream import suites as upstream_suites
from verify.upstream.exact import Numbers
from verify.upstream.suites import OURS, Case, Test

_SCHEMES = {"float": "fp32", "half": "fp16", "static": "qs8", "dynamic": "qd8_qc8w"}
"""The scheme of the zoo with the same arithmetic: its tolerances hold (docs/proofs.md)."""
_CLEARLY = 4.0
"""The side whose outputs are this many times closer to the exact result is right."""


def limits_of(case: Case, kind: str = "output") -> tuple[Tolerance, ...]:
    """For each of upstream's outputs how far ours may be; or of PyTorch's, which are of the kind ``eager``."""
    import torch

    from models.reference import tolerances
    from models.zoo.schemes import get_scheme

    outputs = []
    for file in case.files(kind):
        array = np.load(file, allow_pickle=False)
        if array.dtype.kind != "V":
            outputs.append(torch.from_numpy(array))
        elif array.dtype.itemsize:
            outputs.append(torch.from_numpy(array.view(np.int16)).view(torch.bfloat16))
        else:
            outputs.append(None)
    scheme = get_scheme(_SCHEMES[case.kind])
    return tolerances.of_outputs(scheme, outputs, case.steps[: len(outputs)], shallow=case.shallow)


def compared(case: Case) -> Compared:
    """A case as something to compare: with what upstream's runtime gave, or PyTorch where that refuses the program."""
    kind = "eager" if case.refused else "output"
    about = About(case.name, "upstream", case.test, "", case.kind, exact=False)
    return Compared(
        about, case.file, case.files("input"), case.files(kind), limits_of(case, kind), case.runs, 0, 0,
        case.method, case.data, case.first,
    )  # fmt: skip


def _numbers(file: Path) -> Numbers:
    array = np.load(file, allow_pickle=False)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    if array.dtype.str == "|V0":  # None
        return np.empty(0)
    if array.dtype.kind == "V":  # bfloat16
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(array, np.float64)


def distance(ours: Sequence[Numbers], expected: Sequence[Numbers]) -> float:
    """The largest difference of some outputs from others; infinite for other shapes or where one alone is finite."""
    worst = 0.0
    for one, other in zip(ours, expected, strict=True):
        if one.shape != other.shape:
            return INFINITE
        with np.errstate(all="ignore"):
            error = np.abs(one - other)
        error[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
        error[~np.isfinite(error)] = INFINITE
        worst = max(worst, float(error.max(initial=0.0)))
    return worst


def who_is_right(case: Case, ours: Sequence[Path]) -> tuple[str, str]:
    """The side that is much closer to the exact result (``lean``, ``upstream`` or neither), with the figures."""
    references = {}
    if case.eager and len(ours) == case.eager:
        references["PyTorch's outputs"] = [_numbers(file) for file in case.files("eager")]
    exactly = upstream_exact.exact(case)
    if exactly is not None:
        references["the exact sums of XNNPACK's whole numbers"] = [exactly]
    figures = ""
    for of, expected in reversed(references.items()):  # what is exact decides
        lean = distance([_numbers(file) for file in ours], expected)
        upstream = distance([_numbers(file) for file in case.files("output")], expected)
        figures = f"from {of} lean is {lean:.2g} away, upstream {upstream:.2g}"
        right = "lean" if lean * _CLEARLY < upstream else "upstream" if upstream * _CLEARLY < lean else ""
        if right:
            return right, figures
    return "", figures or "PyTorch's outputs are not there"


def look_at(executor: Executor, case: Case) -> Cell:
    """One case on one executor.

    Raises:
        HostError: nothing can run it here.
    """
    program = compared(case)
    seen = look(executor, program).cell
    if case.refused:
        return _without_upstream(case, seen)
    if seen.outcome in ("refused", "failed") and documented(seen.why):
        return Cell(outcome="refused", right="known", why=seen.why)
    if seen.outcome != "differs":
        return seen
    with tempfile.TemporaryDirectory(prefix="slipway-upstream-") as folder:
        answer = execute(executor, program, Path(folder))
        side, figures = who_is_right(case, answer.outputs)
    return seen.model_copy(update={"right": side, "why": f"{seen.why}; {figures}"})


def documented(why: str) -> bool:
    """Whether a program is refused for operators alone that docs/lean.md says are missing: those on complex numbers."""
    return complex_only(why.rstrip(".").rpartition("does not have: ")[2].split(", "))


def _without_upstream(case: Case, seen: Cell) -> Cell:
    """A program that upstream's own runtime refuses: the same here, or what PyTorch gives, where that is known."""
    if seen.outcome in ("refused", "failed"):
        return Cell(outcome="refused", right="both", why=f"{seen.why} Upstream's runtime: {case.refused}")
    if case.eager and not seen.good:
        return Cell(outcome="differs", max_abs=seen.max_abs, why=f"from PyTorch's outputs: {seen.why}")
    return Cell(outcome="agrees", right="lean", why=f"upstream's runtime refuses it: {case.refused}")


def journal() -> Journal[Cell]:
    """What was compared on this machine."""
    return Journal.of("upstream-tests", Cell)


def digest(case: Case) -> str:
    """Of everything that decides what a comparison says, but the engine and how it compares."""
    files = [sha256_file(file) for file in (case.file, *case.files("input"), *case.files("output"))]
    parts: list[object] = [files, case.kind, case.steps, case.shallow]
    if case.test.startswith(OURS):
        before = [[name, [sha256_file(file) for file in given]] for name, given in case.first]
        parts += [case.method, case.runs, [sha256_file(file) for file in case.data], before]
    return sha256_bytes(json.dumps(parts).encode())[:16]


def columns(executors: Sequence[Executor], cases: Sequence[Case]) -> list[Column]:
    """The last results of these cases on these executors."""
    seen = dict(journal().all())
    found = []
    for executor in executors:
        target, platform = executor.target, executor.platform
        names = {case.name: cell_name(target, platform.cpu, case.name) for case in cases}
        cells = {name: seen[cell] for name, cell in names.items() if cell in seen}
        found.append(Column(target=target, cpu=platform.cpu, how=platform.how, cells=cells))
    return found


def family_of(test: str) -> str:
    """``xnnpack/test/ops``, the flow of a test of the operators' suite, or the kind of a program of ours."""
    if test.startswith(OURS):
        return f"ours, {upstream_suites.family_of(test)}"
    if test.startswith("test/suite/operators"):
        return f"operators, flow {test.partition('[')[2].partition('-')[0].rstrip(']')}"
    return "xnnpack/test/ops"


def families(tests: Sequence[Test]) -> dict[str, list[str]]:
    """The names of the tests' cases by families."""
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(family_of(test.name), []).extend(case.name for case in test.cases)
    return found


@dataclass(frozen=True)
class Collected:
    """All of upstream's tests that ran, and their cases that a runner can be given."""

    tests: tuple[Test, ...]
    cases: tuple[Case, ...]

    @classmethod
    def of(cls, tests: Sequence[Test]) -> Collected:
        """The tests with their cases; one program with the same inputs counts once."""
        cases = [case for test in tests for case in test.cases if not case.left_out]
        return cls(tuple(tests), tuple(cases))


def _sweep(executors: Sequence[Executor], cases: Sequence[Case], again: bool) -> None:
    """Compare all cases on all executors."""
    keys = {case.name: digest(case) for case in cases}
    cells = [
        sweep.Cell(
            cell_name(executor.target, executor.platform.cpu, case.name),
            f"{keys[case.name]}-{executor.key}",
            partial(look_at, executor, case),
        )
        for executor in executors
        for case in cases
    ]
    sweep.sweep("comparing", cells, journal(), again=again, remark=_remark)


def _remark(cell: Cell) -> str:
    return "" if cell.good else f"{cell.outcome}: {cell.why}"


@dataclass(frozen=True)
class Choice:
    """Which of upstream's tests and programs."""

    pattern: str = ""
    """Parts of tests' ids, with commas between them; all when empty."""
    kept: bool = False
    """Only tests that ran here before."""
    sample: int = 1
    """One program of so many: the same ones, whatever else ran."""

    def takes(self, case: Case) -> bool:
        """Whether a program is in the sample."""
        return int(sha256_bytes(case.name.encode())[:8], 16) % self.sample == 0

    def collected(self, jobs: int = 0, *, whole: bool) -> Collected:
        """The tests' programs; runs the remaining tests first, unless only the earlier ones are requested.

        Args:
            whole: each family has to be there as a whole.

        Raises:
            UsageError: only a part of one is chosen.
        """
        names = upstream_suites.chosen(self.pattern)
        chosen = {family_of(name) for name in names}
        upstreams = [] if all(upstream_suites.family_of(name) for name in names) else upstream_suites.names()
        known = [*upstream_suites.our_names(), *upstreams]
        listed = [name for name in known if family_of(name) in chosen]
        if whole and len(listed) > len(names):
            raise UsageError(
                "--update goes with whole families of programs.",
                "the docs count all of a family",
                "./inv self.agree --sound --update",
            )
        tests = upstream_suites.ran(names) if self.kept else upstream_suites.collect(names, jobs)
        return Collected.of(tests)


def run(target: str, cpu: str, some: Choice, as_json: bool, update: bool, again: bool = False) -> None:
    """Collect the programs of upstream's tests and ours, run them on executors, show the results.

    Args:
        some: which tests and programs.

    Raises:
        UsageError: a part of a family is to be kept for the docs, which count all.
        MismatchError: some differ and upstream may be right, or fail, or are refused here alone.
    """
    from core.environment import ensure_export, ensure_test
    from verify.agree.agree import executors_for

    ensure_export()
    ensure_test()
    found = some.collected(whole=update)
    executors = executors_for(target, cpu)
    try:
        _sweep(executors, [case for case in found.cases if some.takes(case)], again)
    finally:
        summary = summarize(families(found.tests), columns(executors, found.cases))
        if update:
            publish(summary)
    if as_json:
        console.print_json(summary.model_dump(mode="json"))
    else:
        console.table("Sound programs on the engine lean", *rows(summary))
    wrong = [one for one in summary.notable if one.right not in ("lean", "both", "known")]
    if wrong:
        raise MismatchError(
            f"{len(wrong)} sound programs do not agree with upstream's runtime.",
            "; ".join(f"{one.case} on {one.target} {one.cpu}: {one.outcome}" for one in wrong[:6]),
            "./inv self.agree --sound --target TARGET --cpu CPU --program TEST",
            [one.case for one in wrong],
        )
