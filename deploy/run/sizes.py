"""Run a program of dynamic shapes at other sizes than its example's: the least and the greatest that it takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import TransferError
from core.formats.program import Tolerance
from deploy.run import collect
from deploy.run.compare import Comparison, digest, load
from deploy.run.result import MethodRan
from deploy.run.runner import RunnerResult
from deploy.store.store import Blob


@dataclass(frozen=True)
class Sized:
    """Inputs of other sizes, or of another method, with their reference."""

    name: str
    inputs: dict[str, Blob]
    """By their names in the run's folder."""
    references: tuple[Path, ...]
    tolerances: tuple[Tolerance, ...]
    method: str = ""
    """Which one; empty: the job's own."""
    first: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Methods that run once before, each with the names of its inputs."""


def compared(
    cases: Sequence[Sized],
    run: Callable[[Sized], RunnerResult],
    fetch: Callable[[RunnerResult, Path], object],
) -> tuple[tuple[Comparison, ...], tuple[MethodRan, ...]]:
    """Run each case once and compare its outputs; they are named ``output0 (least)``. Also the times of other methods.

    Args:
        run: executes a case's method on its inputs.
        fetch: brings the outputs into a folder.

    Raises:
        TransferError: the runner read other inputs than were uploaded.
    """
    rows: list[Comparison] = []
    ran: list[MethodRan] = []
    for case in cases:
        answer = run(case)
        if case.method:
            ran.append(MethodRan.of(case.method, answer))
        if [one.sha256 for one in answer.inputs] != [digest(load(blob.source)[1]) for blob in case.inputs.values()]:
            raise TransferError(
                f"The runner read other inputs of {case.name} than were uploaded.",
                "the device's disk or its memory is damaged",
                "./inv devices.verify NAME",
                tuple(case.inputs),
            )
        with tempfile.TemporaryDirectory() as folder:
            fetch(answer, Path(folder))
            found = collect.compare_all(answer, Path(folder), case.references, case.tolerances)
        rows += [one.model_copy(update={"name": f"{one.name} ({case.name})"}) for one in found]
    return tuple(rows), tuple(ran)
