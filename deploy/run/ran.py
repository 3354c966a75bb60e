"""The runner's report on the bytes that it ran: digests of the program, of its weights and of its inputs.

Before a run, digests vouch for the files on a device (`deploy.store.vouch`). The runner computes digests of the bytes
that it read itself: always those of the inputs, and those of the program and its weights if this takes less than 5 % of
the run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from core.errors import (
    CrashError,
    MissingOperatorError,
    ProgramError,
    RunError,
    SlipwayError,
    TransferError,
    UsageError,
)
from deploy.run.compare import digest, load
from deploy.run.job import Job
from deploy.run.runner import RunnerResult

MAY_BE_DAMAGE: tuple[type[SlipwayError], ...] = (
    CrashError, MissingOperatorError, ProgramError, RunError, UsageError,
)  # fmt: skip
"""Exit codes that damaged bytes, of the program or of the runner itself, can have caused."""


@dataclass(frozen=True)
class Read:
    """The files of a job that the runner digested."""

    same: frozenset[str]
    """Names of the files that had the uploaded digest."""
    other: dict[str, str]
    """Names of the others, with the digests that the runner computed."""


NOTHING = Read(frozenset(), {})


def read(answer: RunnerResult, job: Job) -> Read:
    """Compare the digests in ``answer`` with those of ``job``."""
    expected = {name: blob.sha256 for name, blob in job.files.items() if name not in job.input_names}
    files = answer.digests.files if answer.digests else ()
    found = {name: each.sha256 for each in files if (name := re.split(r"[/\\]", each.path)[-1]) in expected}
    if len(answer.inputs) == len(job.inputs):
        for name, blob, tensor in zip(job.input_names, job.inputs, answer.inputs, strict=True):
            expected[name] = digest(load(blob.source)[1])
            found[name] = tensor.sha256
    same = frozenset(name for name, sha256 in found.items() if sha256 == expected[name])
    return Read(same, {name: sha256 for name, sha256 in found.items() if name not in same})


def check(found: Read, device: str) -> None:
    """Refuse a run of other bytes.

    Raises:
        TransferError: it read other bytes than those that were uploaded.
    """
    if found.other:
        name, sha256 = next(iter(found.other.items()))
        raise TransferError(
            f"The runner on {device} read another {', '.join(found.other)} than was uploaded.",
            f"{name} has the SHA-256 {sha256[:16]}… for the runner, and another one for the device itself: its disk or "
            "its memory is damaged, or something changes the file while it runs",
            f"./inv devices.verify {device}, and another root in devices.toml",
            tuple(found.other),
        )


@contextlib.contextmanager
def noted(failures: list[SlipwayError]) -> Iterator[None]:
    """Add a failure that damage may have caused to ``failures`` instead of raising it."""
    try:
        yield
    except MAY_BE_DAMAGE as error:
        failures.append(error)


@contextlib.contextmanager
def instead(failures: list[SlipwayError]) -> Iterator[None]:
    """Raise the run's own failure, if any, if the search for its cause fails too."""
    try:
        yield
    except SlipwayError as error:
        if failures:
            raise failures[0] from error
        raise
