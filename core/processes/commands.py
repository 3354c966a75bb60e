"""Run other programs: argv lists only, output to a log, children ended with us."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import HostError, SlipwayError
from core.processes import output
from core.processes.interrupts import interrupts_later

_WIDE = 2000
"""Characters of a line that an error quotes."""


def quote(argv: Sequence[str | os.PathLike[str]]) -> str:
    """The command as one would type it."""
    return shlex.join(os.fspath(word) for word in argv)


def typed() -> list[str]:
    """The words that the user typed: `inv` adds the checkout's folder to them."""
    words = sys.argv[1:]
    return ["./inv", *(words[2:] if words[:1] == ["--search-root"] else words)]


def need(program: str, hint: str) -> str:
    """Path of ``program``, or a `HostError` that says how to get it."""
    path = shutil.which(program)
    if path is None:
        raise HostError(f"{program} is not installed.", "it is not on PATH", hint)
    return path


@dataclass(frozen=True)
class Done:
    """A finished command: exit status (negative: ended by that signal) and captured text."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


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
                hint = "./inv doctor --cache" if "/" in words[0] else f"install {words[0]} with the system's packages"
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
) -> Done:
    """Run ``argv`` to its end and capture what it prints.

    Of messages the first and the last `output.EDGE` bytes are kept; standard output is an answer, and all of it.

    Args:
        timeout: seconds after which its process group is ended.
        error: raised on a non-zero exit with the log's last lines; ``None`` leaves the judgement to the caller.
        what: what it was for, in the error's first line ("Cross-building the runner").
        log: the file that the whole output is appended to, as it comes.

    Raises:
        HostError: the program does not exist, or its answer is longer than `output.ANSWER` (then ``error``, if given).
    """
    failure = error or HostError
    answer, messages = output.Kept(output.ANSWER), output.Kept()
    name = what or os.fspath(argv[0])
    see_log = f" The whole log is in {log}." if log else ""
    with _logged(log, argv) as note:

        def take(is_message: bool, piece: bytes) -> None:
            note(piece)
            kept = messages if is_message else answer
            kept.add(piece)
            if answer.size > output.ANSWER:
                raise failure(
                    f"{name} printed more than {output.ANSWER >> 20} MiB, and was ended.{see_log}", quote(argv), hint
                )

        with process(argv, cwd=cwd, env=env) as child:
            try:
                code = output.drain(child, timeout, take)
            except subprocess.TimeoutExpired as late:
                raise failure(f"{name} took longer than {timeout:.0f} s.", quote(argv), hint) from late
        note(f"\n[exit {code}]\n".encode())
    stdout, stderr = answer.text, messages.text
    if code != 0 and error is not None:
        last = "\n".join(line[:_WIDE] for line in (stderr.strip() or stdout.strip()).splitlines()[-12:])
        raise error(f"{name} failed (exit {code}).{see_log}", f"{quote(argv)}\n{last}", hint)
    return Done(tuple(os.fspath(word) for word in argv), code, stdout, stderr)


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
