"""Our sound programs as something to compare: made once, kept in the cache; and who is right where engines differ."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core import console
from core.errors import ExportError, UsageError
from core.files import locked, sha256_bytes, sha256_file
from core.formats.program import Tolerance
from core.paths import ROOT, cache_dir
from deploy.run.needs import complex_only
from verify.agree.look import Executor, execute, look
from verify.agree.programs import INFINITE, About, Cell, Compared
from verify.programs import Maker, pick
from verify.sound import MODEL, RECORD

Numbers = np.ndarray[Any, np.dtype[np.float64]]

_CODE = ("models/lowering/shortcuts.py", "models/loading/reference.py", "models/reference/tolerances.py")
"""What decides about the programs, besides ``verify/sound`` and the exporter's versions."""
_CLEARLY = 4.0
"""The side whose outputs are this many times closer to the exact result is right."""


@dataclass(frozen=True)
class Case(Compared):
    """A run of a program of ours, and what upstream's runtime and PyTorch made of it."""

    eager: tuple[Path, ...] = ()
    """PyTorch's outputs."""
    refused: str = ""
    """What upstream's runtime said where it did not run the program; ``outputs`` are PyTorch's then."""


def family_of(name: str) -> str:
    """``ours, sizes``: the kind of a program."""
    return f"ours, {name.partition('-')[0]}"


def names() -> list[str]:
    """All programs: ``sizes-linear-delegated``, the family first."""
    from verify.sound.table import programs

    return list(programs())


def _base() -> Path:
    """The folder of programs by what decides about them."""
    from models.request import versions

    files = [*(ROOT / name for name in _CODE), *sorted((ROOT / "verify" / "sound").glob("*.py"))]
    parts = [versions(), [sha256_file(file) for file in files]]
    return cache_dir("tests", "sound", sha256_bytes(json.dumps(parts).encode())[:20])


def collect(chosen: Sequence[str]) -> dict[str, list[Case]]:
    """Programs by their names, each with its runs; makes those that are not there yet.

    Raises:
        ExportError: some cannot be made.
    """
    base = _base()
    with locked("sound-programs", "waiting for another ./inv self.agree --sound"):
        _make(base, [name for name in chosen if not (base / name / RECORD).is_file()])
    return {name: _cases(name, base / name) for name in chosen}


def _make(base: Path, missing: Sequence[str]) -> None:
    failed = []
    with console.step("making sound programs", announce=False) as step:
        step.count(0, len(missing))
        # A process a family: what torch compiled in it is never given back.
        for _, some in itertools.groupby(sorted(missing, key=family_of), family_of):
            with Maker("verify.sound.table") as maker:
                for name in some:
                    step.now(name)
                    made = maker.ask(name, {"name": name, "folder": os.fspath(base / name)})
                    failed += [f"{name}: {made.error}"] if made.error else []
                    step.one()
    if failed:
        raise ExportError(f"{len(failed)} sound programs cannot be made.", "; ".join(failed), f"see {maker.log}")


def _cases(name: str, folder: Path) -> list[Case]:
    def files(listed: Iterable[str]) -> tuple[Path, ...]:
        return tuple(folder / one for one in listed)

    return [
        Case(
            About(f"{name} #{number}"), folder / MODEL, files(said["inputs"]),
            files(said["eager" if said["refused"] else "outputs"]), tuple(Tolerance(**one) for one in said["limits"]),
            said["runs"], said["method"], files(said["data"]),
            tuple((method, files(given)) for method, given in said["first"]), files(said["eager"]), said["refused"],
        )
        for number, said in enumerate(json.loads((folder / RECORD).read_text(encoding="utf-8")))
    ]  # fmt: skip


def families(programs: Iterable[str], cases: Iterable[Case]) -> dict[str, list[str]]:
    """The names of runs by families, in the order of ``programs``."""
    found: dict[str, list[str]] = {family_of(name): [] for name in programs}
    for case in cases:
        found[family_of(case.about.name)].append(case.about.name)
    return found


def choose(pattern: str, *, whole: bool) -> list[str]:
    """The programs whose names have one of the pattern's parts; ``whole``: only families as a whole.

    Raises:
        ConfigError: a part names nothing. UsageError: only a part of a family is chosen.
    """
    known = names()
    chosen = pick(known, pattern, "./inv self.agree --sound --program 'state-*'")
    some = {family_of(name) for name in chosen}
    if whole and len(chosen) < sum(family_of(name) in some for name in known):
        raise UsageError(
            "--update goes with whole families of programs.",
            "the docs count all of a family",
            "./inv self.agree --sound --update",
        )
    return chosen


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
    """The side that is much closer to PyTorch's outputs (``lean``, ``upstream`` or neither), with the figures."""
    if len(ours) != len(case.eager):
        return "", "PyTorch has other outputs"
    expected = [_numbers(file) for file in case.eager]
    lean, upstream = (distance([_numbers(file) for file in side], expected) for side in (ours, case.outputs))
    right = "lean" if lean * _CLEARLY < upstream else "upstream" if upstream * _CLEARLY < lean else ""
    return right, f"from PyTorch's outputs lean is {lean:.2g} away, upstream {upstream:.2g}"


def look_at(executor: Executor, case: Case) -> Cell:
    """One case on one executor.

    Raises:
        HostError: nothing can run it here.
    """
    seen = look(executor, case)
    if case.refused:
        return _without_upstream(case, seen)
    if seen.outcome in ("refused", "failed") and documented(seen.why):
        return Cell(outcome="refused", right="known", why=seen.why)
    if seen.outcome != "differs":
        return seen
    with tempfile.TemporaryDirectory(prefix="slipway-sound-") as folder:
        side, figures = who_is_right(case, execute(executor, case, Path(folder)).outputs)
    return seen.model_copy(update={"right": side, "why": f"{seen.why}; {figures}"})


def documented(why: str) -> bool:
    """Whether a program is refused for operators alone that docs/lean.md says are missing: those on complex numbers."""
    return complex_only(why.rstrip(".").rpartition("does not have: ")[2].split(", "))


def _without_upstream(case: Case, seen: Cell) -> Cell:
    """A program that upstream's own runtime refuses: the same here, or what PyTorch gives."""
    if seen.outcome in ("refused", "failed"):
        return Cell(outcome="refused", right="both", why=f"{seen.why} Upstream's runtime: {case.refused}")
    if not seen.good:
        return Cell(outcome="differs", max_abs=seen.max_abs, why=f"from PyTorch's outputs: {seen.why}")
    return Cell(outcome="agrees", right="lean", why=f"upstream's runtime refuses it: {case.refused}")
