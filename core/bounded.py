"""Run a program that reads what came from anywhere: with limits on its time, its memory and what it prints."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from core.commands import Done, process, quote
from core.errors import SlipwayError

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What a program may take."""

    seconds: float
    """From its start to its end, by the clock."""
    memory: int
    """Bytes of its own data (``RLIMIT_DATA``); where the system has no such limit, none."""
    output: int
    """Bytes on standard output and standard error together."""


class LimitError(SlipwayError):
    """A program took more than it may; it was ended."""


def run_bounded(argv: Sequence[str | os.PathLike[str]], limits: Limits, what: str) -> Done:
    """Run ``argv`` to its end within ``limits``; its exit status is the caller's to judge.

    Args:
        what: what it is for, the beginning of an error's first line ("Reading a.pte").

    Raises:
        LimitError: it took longer or printed more; its process group was ended. A program that gets no more memory
            answers by itself. HostError: the program is not there.
    """
    with process(argv) as child:
        _restrict(child.pid, limits)
        out, err = _read(child, limits, what)
        try:
            code = child.wait(timeout=max(0.1, limits.seconds))
        except subprocess.TimeoutExpired as late:
            raise _late(argv, limits, what) from late
    texts = out.decode(errors="replace"), err.decode(errors="replace")
    return Done(tuple(os.fspath(word) for word in argv), code, *texts)


def _restrict(pid: int, limits: Limits) -> None:
    """Lower the limits of a process that has just been started: between fork and exec no Python may run here.

    Linux alone can do that for another process; elsewhere the program's own limits hold.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        most = limits.memory if hard == resource.RLIM_INFINITY else min(limits.memory, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))


def _late(argv: Sequence[str | os.PathLike[str]], limits: Limits, what: str) -> LimitError:
    return LimitError(f"{what} took longer than {limits.seconds:.0f} s.", quote(argv))


def _read(child: subprocess.Popen[bytes], limits: Limits, what: str) -> tuple[bytes, bytes]:
    """What it prints up to the end of both streams."""
    until = time.monotonic() + limits.seconds
    texts: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None  # noqa: S101  # `process` makes both
            texts[pipe.fileno()] = bytearray()
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise _late([str(word) for word in child.args], limits, what)  # type: ignore[union-attr]
            for key, _ in selector.select(left):
                piece = os.read(key.fd, _CHUNK)
                if not piece:
                    selector.unregister(key.fileobj)
                texts[key.fd] += piece
            if sum(map(len, texts.values())) > limits.output:
                raise LimitError(f"{what} printed more than {limits.output:,} bytes.", "it was ended")
    out, err = texts.values()
    return bytes(out), bytes(err)
