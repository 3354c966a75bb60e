"""Run other programs: argv lists only, output to a log, children ended with us."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, AnyStr

from core.errors import HostError, SlipwayError
from core.paths import IMPORTS
from core.processes.interrupts import interrupts_later

PIECE = 1 << 16
ANSWER = 64 << 20
"""Bytes of standard output that a caller gets as an answer; a program that prints more is ended."""
EDGE = 1 << 20
"""Bytes kept of the beginning and of the end of messages."""
LINE = 1 << 16
"""Characters after which a line is split."""


class LimitError(HostError):
    """A program exceeded a limit; it was ended."""


class Kept:
    """The beginning and the end of a stream."""

    def __init__(self, edge: int = EDGE) -> None:
        self._edge = edge
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        """Bytes received."""

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self.size += len(piece)
        room = self._edge - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._edge:
            del self._tail[: -self._edge]

    @property
    def text(self) -> str:
        """What is kept, with a line for what is left out."""
        tail = self._tail[-self._edge :]
        out = self.size - len(self._head) - len(tail)
        middle = f"\n[... {out:,} bytes are left out here ...]\n".encode() if out else b""
        return (self._head + middle + tail).decode(errors="replace")


def drain(child: subprocess.Popen[bytes], seconds: float | None, take: Callable[[bool, bytes], None]) -> int:
    """Pass on what ``child`` prints, piece by piece, until both of its pipes end; return its exit status.

    Args:
        take: gets each piece, and whether it is of standard error.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``seconds``.
    """
    until = None if seconds is None else time.monotonic() + seconds

    def left() -> float | None:
        if until is None:
            return None
        rest = until - time.monotonic()
        if rest <= 0:
            raise subprocess.TimeoutExpired(child.args, seconds or 0)
        return rest

    with selectors.DefaultSelector() as selector:
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, pipe is child.stderr)
        while selector.get_map():
            for key, _ in selector.select(left()):
                if piece := os.read(key.fd, PIECE):
                    take(key.data, piece)
                else:
                    selector.unregister(key.fileobj)
    return child.wait(left())


def lines(stream: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of a stream; one that does not end comes in parts of `LINE`."""
    while line := stream.readline(LINE):
        yield line


_WIDE = 2000
"""Characters of a line that an error quotes."""


def quote(argv: Sequence[str | os.PathLike[str]]) -> str:
    """The command as one would type it."""
    return shlex.join(os.fspath(word) for word in argv)


def typed() -> list[str]:
    """The words that the user typed: `inv` adds the checkout's folder to them."""
    words = sys.argv[1:]
    return ["./inv", *(words[2:] if words[:1] == ["--search-root"] else words)]


@dataclass(frozen=True)
class Done:
    """A finished command: exit status (negative: ended by that signal) and captured text."""

    returncode: int
    stdout: str
    stderr: str


def own_module(name: str) -> list[str]:
    """Argv that runs a module of ours in a process of its own.

    Our folder comes first: with -m alone a module of the current folder could replace ours.
    """
    run = "import runpy, sys; sys.path[0] = sys.argv.pop(1); runpy.run_module(sys.argv.pop(1), None, '__main__')"
    return [sys.executable, "-c", run, str(IMPORTS), name]


_RUNNERS_MARK = "RUNNER_TRACKING_ID"
"""GitHub's runner ends all processes with its mark when a job ends."""
_running: set[subprocess.Popen[bytes]] = set()


@contextlib.contextmanager
def process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``argv`` in a process group of its own; however the block ends, the group ends with it.

    A Ctrl-C raises in the main thread only: what other threads started ends by `end_all`.
    """
    words = [os.fspath(word) for word in argv]
    child: subprocess.Popen[bytes] | None = None
    try:  # outside: a Ctrl-C right after the start would find nobody to end
        with interrupts_later() as interrupted:
            try:
                child = subprocess.Popen(
                    words,
                    cwd=cwd,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                hint = "./inv clean --cache" if "/" in words[0] else f"install {words[0]} with the system's packages"
                raise HostError(f"{words[0]} does not exist.", str(error), hint) from error
            _running.add(child)
        if interrupted:
            raise KeyboardInterrupt
        yield child
    finally:
        if child is not None:
            _finish(child)


def _finish(child: subprocess.Popen[bytes]) -> None:
    try:
        if child.poll() is None:
            end_group(child)
    finally:
        _running.discard(child)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def lasting() -> dict[str, str]:
    """The environment of a process that later commands use, too: another job may use it when this one ends."""
    return {name: value for name, value in os.environ.items() if name != _RUNNERS_MARK}


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end_group(child: subprocess.Popen[bytes], grace: float = 3.0) -> None:
    """End ``child`` and all of the process group it leads: TERM, then KILL after ``grace`` seconds.

    A second Ctrl-C does not wait for that: KILL comes at once.
    """
    try:
        _signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    finally:
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()


def end_all() -> None:
    """End what `process` started in all threads: they see it end, and go on."""
    for child in list(_running):
        if child.poll() is None:
            end_group(child)


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    error: type[SlipwayError] | None = HostError,
    what: str = "",
    hint: str = "",
    log: Path | None = None,
    most: int = ANSWER,
    memory: int | None = None,
) -> Done:
    """Run ``argv`` to its end and capture what it prints.

    Of messages the first and the last `EDGE` bytes are kept; standard output is an answer, and all of it.

    Args:
        timeout: seconds after which its process group is ended.
        error: raised on a non-zero exit with the log's last lines; ``None`` leaves the judgement to the caller.
        what: what it was for, in the error's first line ("Cross-building the runner").
        log: the file that the whole output is appended to, as it comes.
        most: bytes of standard output, after which its process group is ended.
        memory: bytes of its own data (``RLIMIT_DATA``), where the system can limit another process's; a program that
            runs out of it reports that itself.

    Raises:
        HostError: the program does not exist.
        LimitError: it took longer, or its answer is longer; ``error`` instead, if given.
    """
    failure = error or LimitError
    answer, messages = Kept(most), Kept()
    name = what or os.fspath(argv[0])
    see_log = f" The whole log is in {log}." if log else ""
    with _logged(log, argv) as note:

        def take(is_message: bool, piece: bytes) -> None:
            note(piece)
            (messages if is_message else answer).add(piece)
            if answer.size > most:
                raise failure(f"{name} printed more than {most:,} bytes, and was ended.{see_log}", quote(argv), hint)

        with process(argv, cwd=cwd, env=env) as child:
            if memory is not None:
                _restrict(child.pid, memory)
            try:
                code = drain(child, timeout, take)
            except subprocess.TimeoutExpired as late:
                raise failure(f"{name} took longer than {timeout:.0f} s.", quote(argv), hint) from late
        note(f"\n[exit {code}]\n".encode())
    stdout, stderr = answer.text, messages.text
    if code != 0 and error is not None:
        last = "\n".join(line[:_WIDE] for line in (stderr.strip() or stdout.strip()).splitlines()[-12:])
        raise error(f"{name} failed (exit {code}).{see_log}", f"{quote(argv)}\n{last}", hint)
    return Done(code, stdout, stderr)


@contextlib.contextmanager
def _logged(log: Path | None, argv: Sequence[str | os.PathLike[str]]) -> Iterator[Callable[[bytes], object]]:
    """What appends to ``log``, and does nothing without one."""
    if log is None:
        yield lambda _: None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"$ {quote(argv)}\n".encode(errors="surrogateescape"))
        yield file.write


def _restrict(pid: int, memory: int) -> None:
    """Lower the limit of a process that has just been started: between fork and exec no Python may run here.

    Only Linux can do that for another process; on other systems the program's own limit holds.
    """
    if sys.platform != "linux":
        return
    import resource

    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))
