"""Fetch a run's outputs and compare them with the reference.

The device is not trusted: names are ours, sizes are limited, digests are computed again here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.errors import AnswerError, TransferError
from core.formats.program import Tolerance
from deploy.run import compare, npy, runner
from deploy.run.compare import Comparison
from deploy.store.store import Store
from deploy.transport.base import Transport
from deploy.transport.deadline import Deadline

_OUTPUT_LIMIT = 2 << 30
"""Bytes of one output; all of them together must fit on this machine's disk (`deploy.transport.hearing.receiving`)."""
_TOTAL_LIMIT = 8 << 30
"""Bytes of all outputs of a run."""
_ETDUMP_LIMIT = 1 << 30
_VALUES_LIMIT = 4 << 30


def read_result(transport: Transport, store: Store, sent: Mapping[str, bytes], deadline: Deadline) -> bytes:
    """The runner's JSON: from the files that came with the run's end, else from the run's folder; empty if missing."""
    if runner.RESULT in sent:
        return sent[runner.RESULT]
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / runner.RESULT
        try:
            transport.get(f"{store.run_folder}/{runner.RESULT}", local, runner.RESULT_LIMIT, deadline)
        except AnswerError:
            raise  # it exists and is too long
        except TransferError:
            return b""
        return local.read_bytes()


def fetch(
    transport: Transport,
    store: Store,
    answer: runner.RunnerResult,
    sent: Mapping[str, bytes],
    folder: Path,
    etdump: bool,
    deadline: Deadline,
    *,
    values: bool = False,
) -> list[str]:
    """Fetch the outputs (and the ETDump) to ``folder``; return their names.

    Args:
        sent: files that came with the run's end.

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
            raise AnswerError(
                f"{name} on {transport.name} is said to hold {limit:,} bytes.",
                f"{_OUTPUT_LIMIT:,} are fetched for one output, {_TOTAL_LIMIT:,} for all of a run",
                "a program with smaller outputs, or with fewer of them",
            )
        if len(sent.get(name, b"")) > limit:
            raise AnswerError(
                f"{name} on {transport.name} is longer than expected.",
                f"more than {limit:,} bytes",
                f"./inv devices.verify {transport.name}, then the same command again",
            )
        if name in sent:
            (folder / name).write_bytes(sent[name])
        else:
            transport.get(f"{store.run_folder}/{name}", folder / name, limit, deadline)
        dtype, array = compare.load(folder / name)
        if (dtype, array.shape, compare.digest(array)) != (tensor.dtype, tensor.shape, tensor.sha256):
            raise TransferError(
                f"{name} is not what the runner on {transport.name} computed: its SHA-256, dtype or shape differs.",
                "it changed during the transfer or on the device's disk",
                "the same command again",
                (name,),
            )
        names.append(name)
    if etdump:
        transport.get(f"{store.run_folder}/{runner.ETDUMP}", folder / runner.ETDUMP, _ETDUMP_LIMIT, deadline)
        names.append(runner.ETDUMP)
    if values:
        transport.get(f"{store.run_folder}/{runner.VALUES}", folder / runner.VALUES, _VALUES_LIMIT, deadline)
        names.append(runner.VALUES)
    return names


def compare_all(
    answer: runner.RunnerResult, folder: Path, references: Sequence[Path], tolerances: Sequence[Tolerance]
) -> tuple[Comparison, ...]:
    """Every output in ``folder`` against its reference; an output or reference without the other differs too."""
    rows: list[Comparison] = []
    count = len(answer.outputs)
    for index in range(max(count, len(references))):
        name = f"{runner.OUTPUT}{index}"
        got = folder / f"{name}.npy"
        if index >= count:
            rows.append(
                Comparison(name=name, dtype="", shape=(), verdict="differs", why="the run did not give this output")
            )
        elif index < len(references):
            tolerance = tolerances[index] if index < len(tolerances) else None
            rows.append(compare.compare(name, got, references[index], tolerance))
        elif references:
            extra = {"verdict": "differs", "why": "the reference does not have this output"}
            rows.append(compare.unreferenced(name, got).model_copy(update=extra))
        else:
            rows.append(compare.unreferenced(name, got))
    return tuple(rows)
