"""Fetch a run's outputs, compare them with the reference, and see what the runner says of the bytes that it ran.

The device is not trusted: names are ours, sizes are limited, digests are computed again here. Before a run, digests
vouch for the files on a device (`deploy.store.vouch`). The runner computes digests of the bytes that it read itself:
always those of the inputs, and those of the program and its weights if this takes less than 5 % of the run.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from core import errors
from deploy.run import compare, npy, runner
from deploy.run.compare import Comparison, digest
from deploy.run.job import Job, Sized
from deploy.run.npy import load
from deploy.run.result import ClassSeen, MethodRan
from deploy.transport.base import Transport
from deploy.transport.deadline import Deadline

_OUTPUT_LIMIT = 2 << 30
"""Bytes of one output; all of them together must fit on this machine's disk (`deploy.transport.hearing.receiving`)."""
_TOTAL_LIMIT = 8 << 30
"""Bytes of all outputs of a run."""
_LIMITS = {runner.ETDUMP: 1 << 30, runner.VALUES: 4 << 30}


def read_result(transport: Transport, folder: str, sent: Mapping[str, bytes], deadline: Deadline) -> bytes:
    """The runner's JSON: from the files that came with the run's end, else from the run's folder; empty if missing."""
    if runner.RESULT in sent:
        return sent[runner.RESULT]
    with tempfile.TemporaryDirectory() as here:
        local = Path(here) / runner.RESULT
        try:
            transport.get(f"{folder}/{runner.RESULT}", local, runner.RESULT_LIMIT, deadline)
        except errors.AnswerError:
            raise  # it exists and is too long
        except errors.TransferError:
            return b""
        return local.read_bytes()


def fetch(
    transport: Transport,
    there: str,
    answer: runner.RunnerResult,
    sent: Mapping[str, bytes],
    folder: Path,
    deadline: Deadline,
    more: Iterable[str] = (),
) -> list[str]:
    """Fetch the outputs from ``there``, the run's folder, and files of `_LIMITS`, to ``folder``; return their names.

    Those that came with the run's end are in ``sent``.

    Raises:
        TransferError: missing, or not the bytes whose digest the runner gave. AnswerError: too long, or not an array.
    """
    names: list[str] = []
    total = 0
    for index, tensor in enumerate(answer.outputs):
        name = f"{runner.OUTPUT}{index}.npy"
        limit = npy.size_of(tensor.dtype, tensor.shape)
        total += limit
        if limit > _OUTPUT_LIMIT or total > _TOTAL_LIMIT:
            raise errors.AnswerError(
                f"{name} on {transport.name} is said to hold {limit:,} bytes.",
                f"{_OUTPUT_LIMIT:,} are fetched for one output, {_TOTAL_LIMIT:,} for all of a run",
                "a program with smaller outputs, or with fewer of them",
            )
        if len(sent.get(name, b"")) > limit:
            raise errors.AnswerError(
                f"{name} on {transport.name} is longer than expected.",
                f"more than {limit:,} bytes",
                f"./inv devices.verify {transport.name}, then the same command again",
            )
        if name in sent:
            (folder / name).write_bytes(sent[name])
        else:
            transport.get(f"{there}/{name}", folder / name, limit, deadline)
        dtype, array = load(folder / name)
        if (dtype, array.shape, digest(array)) != (tensor.dtype, tensor.shape, tensor.sha256):
            raise errors.TransferError(
                f"{name} is not what the runner on {transport.name} computed: its SHA-256, dtype or shape differs.",
                "it changed during the transfer or on the device's disk",
                "the same command again",
                (name,),
            )
        names.append(name)
    for name in more:
        transport.get(f"{there}/{name}", folder / name, _LIMITS[name], deadline)
        names.append(name)
    return names


def compare_all(answer: runner.RunnerResult, folder: Path, case: Sized) -> tuple[Comparison, ...]:
    """Every output in ``folder`` against its reference; an output or reference without the other differs too."""
    rows: list[Comparison] = []
    outputs = range(len(answer.outputs))
    for index, reference, tolerance in zip_longest(outputs, case.references, case.tolerances[: len(case.references)]):
        name = f"{runner.OUTPUT}{len(rows)}"
        got = folder / f"{name}.npy"
        if index is None:
            why = "the run did not give this output"
            rows.append(Comparison(name=name, dtype="", shape=(), verdict="differs", why=why))
        elif reference is not None:
            rows.append(compare.compare(name, got, reference, tolerance))
        else:
            why = "the reference does not have this output" if case.references else ""
            extra = {"verdict": "differs", "why": why} if why else {}
            rows.append(compare.unreferenced(name, got).model_copy(update=extra))
    return tuple(rows)


Run = Callable[[Sized], runner.RunnerResult]
"""Executes a case's method on its inputs."""
Fetch = Callable[[runner.RunnerResult, Path], list[str]]
"""Brings the outputs into a folder; gives their names."""


def run_case(case: Sized, run: Run, fetch: Fetch, folder: Path) -> tuple[runner.RunnerResult, list[str]]:
    """Run a case and fetch its outputs to ``folder``; the runner's answer, and the names of the outputs.

    Raises:
        TransferError: the runner read other inputs than were uploaded.
    """
    answer = run(case)
    if [one.sha256 for one in answer.inputs] != [digest(load(blob.source)[1]) for blob in case.inputs.values()]:
        raise errors.TransferError(
            f"The runner read other inputs of {case.name} than were uploaded.",
            "the device's disk or its memory is damaged",
            "./inv devices.verify NAME",
            tuple(case.inputs),
        )
    return answer, fetch(answer, folder)


def compared(cases: Sequence[Sized], run: Run, fetch: Fetch) -> tuple[tuple[Comparison, ...], tuple[MethodRan, ...]]:
    """Run each case once and compare its outputs; they are named ``output0 (least)``. Also the times of other methods.

    Raises:
        TransferError: see `run_case`.
    """
    rows: list[Comparison] = []
    ran: list[MethodRan] = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            answer, _ = run_case(case, run, fetch, Path(folder))
            found = compare_all(answer, Path(folder), case)
        if case.method:
            ran.append(MethodRan(name=case.method, load_ms=answer.load_ms, latency_ms=answer.latency_ms.mean))
        rows += [one.model_copy(update={"name": f"{one.name} ({case.name})"}) for one in found]
    return tuple(rows), tuple(ran)


MAY_BE_DAMAGE: tuple[type[errors.SlipwayError], ...] = (
    errors.CrashError, errors.MissingOperatorError, errors.ProgramError, errors.RunError, errors.TransferError,
    errors.UsageError,
)  # fmt: skip
"""Errors that damaged bytes, of the program or of the runner itself, can have caused."""


def check_read(answer: runner.RunnerResult, job: Job, device: str) -> list[str]:
    """The names of the job's files that the runner digested.

    Raises:
        TransferError: it read other bytes than those that were uploaded.
    """
    expected = {name: blob.sha256 for name, blob in job.files.items() if name not in job.inputs}
    files = answer.digests.files if answer.digests else ()
    found = {name: each.sha256 for each in files if (name := re.split(r"[/\\]", each.path)[-1]) in expected}
    if len(answer.inputs) == len(job.inputs):
        for (name, blob), tensor in zip(job.inputs.items(), answer.inputs, strict=True):
            expected[name] = digest(load(blob.source)[1])
            found[name] = tensor.sha256
    other = [name for name, sha256 in found.items() if sha256 != expected[name]]
    if other:
        raise errors.TransferError(
            f"The runner on {device} read another {', '.join(other)} than was uploaded.",
            f"{other[0]} has the SHA-256 {found[other[0]][:16]}… for the runner, and another one for the device: "
            "its disk or its memory is damaged, or something changes the file while it runs",
            "the same command again, which computes the digests of all files first; or another root in devices.toml",
            tuple(other),
        )
    return list(found)


MOST = 5


def seen(job: Job, got: Path, outputs: Sequence[Comparison]) -> dict[str, Any]:
    """``classes`` and ``picture`` of a result; empty if the outputs have no names, or the inputs are the user's.

    The folder ``got`` has the device's outputs.

    Raises:
        ProgramError: the names are missing or are something else.
    """
    named = job.program.classes if job.program else None
    folder = job.model.source.parent
    if (
        named is None
        or not job.references
        or outputs[0].max_abs is None
        or any(one.source.parent != folder for one in job.inputs.values())
    ):
        return {}
    try:
        names = json.loads((folder / named.file).read_text(encoding="utf-8"))
        device, host, model = (
            _probabilities(load(file))
            for file in (got / f"{runner.OUTPUT}0.npy", job.references[0], folder / named.scores.file)
        )
        rows = [
            ClassSeen(name=str(names[at]), device=float(device[at]), host=float(host[at]), model=float(model[at]))
            for at in np.argsort(-device, kind="stable")[:MOST].tolist()
        ]
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise errors.ProgramError(
            f"{folder / named.file} does not name the outputs of {job.name}.",
            str(error),
            "export it again with --force",
        ) from error
    return {"classes": tuple(rows), "picture": named.picture}


def _probabilities(array: tuple[str, Any]) -> Any:
    """The softmax of the first row of scores."""
    scores = array[1].reshape(-1, array[1].shape[-1])[0].astype(np.float64)
    with np.errstate(all="ignore"):  # a device may give anything
        powers = np.exp(scores - scores.max())
        return powers / powers.sum()
