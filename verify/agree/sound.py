"""The programs of upstream's own tests, and ours, as something to compare; and who is right where engines differ."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.errors import UsageError
from core.files import sha256_bytes, sha256_file
from core.formats.program import Tolerance
from deploy.run.needs import complex_only
from verify.agree.kept import INFINITE, Cell
from verify.agree.look import Executor, execute, look
from verify.agree.programs import About, Compared
from verify.upstream import exact as upstream_exact
from verify.upstream import suites
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
    return Compared(
        About(case.name, case.test, case.kind), case.file, case.files("input"), case.files(kind),
        limits_of(case, kind), case.runs, case.method, case.data, case.first,
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
    seen = look(executor, program)
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


def digest(case: Case) -> str:
    """Of everything that decides what a comparison says, but the engine and how it compares."""
    files = [sha256_file(file) for file in (case.file, *case.files("input"), *case.files("output"))]
    parts: list[object] = [files, case.kind, case.steps, case.shallow]
    if case.test.startswith(OURS):
        before = [[name, [sha256_file(file) for file in given]] for name, given in case.first]
        parts += [case.method, case.runs, [sha256_file(file) for file in case.data], before]
    return sha256_bytes(json.dumps(parts).encode())[:16]


def family_of(test: str) -> str:
    """``xnnpack/test/ops``, the flow of a test of the operators' suite, or the kind of a program of ours."""
    if test.startswith(OURS):
        return f"ours, {suites.family_of(test)}"
    if test.startswith("test/suite/operators"):
        return f"operators, flow {test.partition('[')[2].partition('-')[0].rstrip(']')}"
    return "xnnpack/test/ops"


def families(tests: Sequence[Test]) -> dict[str, list[str]]:
    """The names of the tests' programs that a runner can be given, by families."""
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(family_of(test.name), []).extend(case.name for case in test.cases if not case.left_out)
    return found


def chosen(pattern: str, *, whole: bool) -> list[Test]:
    """Upstream's tests and programs, after those ran that did not yet.

    Args:
        pattern: parts of tests' ids, with commas between them; all when empty.
        whole: each family has to be there as a whole.

    Raises:
        UsageError: only a part of one is chosen.
    """
    names = suites.chosen(pattern)
    families = {family_of(name) for name in names}
    upstreams = [] if all(suites.family_of(name) for name in names) else suites.names()
    listed = [name for name in (*suites.our_names(), *upstreams) if family_of(name) in families]
    if whole and len(listed) > len(names):
        raise UsageError(
            "--update goes with whole families of programs.",
            "the docs count all of a family",
            "./inv self.agree --sound --update",
        )
    return suites.collect(names)
