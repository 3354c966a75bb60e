"""Run a program that reads untrusted files: with limits on its time, its memory and its output."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import SlipwayError
from core.processes.commands import Done, process, quote
from core.processes.output import drain


@dataclass(frozen=True)
class Limits:
    """The limits of a program."""

    seconds: float
    """Wall-clock seconds from its start to its end."""
    memory: int
    """Bytes of its own data (``RLIMIT_DATA``); unlimited if the system does not have this limit."""
    output: int
    """Bytes on standard output and standard error together."""


class LimitError(SlipwayError):
    """A program exceeded a limit; it was ended."""


def run_bounded(argv: Sequence[str | os.PathLike[str]], limits: Limits, what: str) -> Done:
    """Run ``argv`` to its end within ``limits``; the caller judges its exit status.

    Args:
        what: what it is for, the beginning of an error's first line ("Reading a.pte").

    Raises:
        LimitError: it took longer or printed more; its process group was ended. A program that runs out of memory
            reports that itself. HostError: the program does not exist.
    """
    texts = {False: bytearray(), True: bytearray()}

    def take(is_message: bool, piece: bytes) -> None:
        texts[is_message] += piece
        if sum(map(len, texts.values())) > limits.output:
            raise LimitError(f"{what} printed more than {limits.output:,} bytes.", "it was ended")

    with process(argv) as child:
        _restrict(child.pid, limits)
        try:
            code = drain(child, limits.seconds, take)
        except subprocess.TimeoutExpired as late:
            raise LimitError(f"{what} took longer than {limits.seconds:.0f} s.", quote(argv)) from late
    out, err = (texts[which].decode(errors="replace") for which in (False, True))
    return Done(tuple(os.fspath(word) for word in argv), code, out, err)


def _restrict(pid: int, limits: Limits) -> None:
    """Lower the limits of a process that has just been started: between fork and exec no Python may run here.

    Only Linux can do that for another process; on other systems the program's own limits hold.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        most = limits.memory if hard == resource.RLIM_INFINITY else min(limits.memory, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))
