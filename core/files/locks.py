"""Locks that all ``./inv`` of one cache share: a file beside each names its holders, and waiting is timed separately.

The system frees a lock when its holder ends, however it ends. A lock may be shared: any number of processes hold it
together, and a process that holds it alone waits for all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.1
_SAY_S = 60.0
"""Seconds between two messages of a long wait about who holds the lock."""


@dataclass
class _Waited:
    seconds: float = 0.0


_WAITED = _Waited()


def waited() -> float:
    """How many seconds this process has waited for others' locks."""
    return _WAITED.seconds


class Clock:
    """A clock from now on that leaves out waiting for others: ``12 s, after waiting 3 s for others``."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._waited = waited()

    def __str__(self) -> str:
        passed, waiting = time.monotonic() - self._begun, waited() - self._waited
        work = f"{passed - waiting:.0f} s"
        return f"{work}, after waiting {waiting:.0f} s for others" if waiting >= 1 else work


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    command: str
    since: float
    """Seconds since the epoch."""

    def __str__(self) -> str:
        begun = time.strftime("%H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} ({self.command}) since {begun}, {time.time() - self.since:.0f} s"


def _command() -> str:
    """What the user typed, as far as it can be seen."""
    words = [Path(sys.argv[0]).name if sys.argv[0] else "python", *sys.argv[1:]]
    # ./inv passes its own folder on; nobody typed it.
    if "--search-root" in words:
        at = words.index("--search-root")
        words = ["./inv", *words[at + 2 :]]
    text = " ".join(words)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _notes(path: Path) -> Path:
    return path.with_suffix(".holders")


def holders(path: Path) -> list[Holder]:
    """Who holds the lock at ``path``, the longest first; those that have ended are left out.

    Also empty if no holder was written down.
    """
    found: list[Holder] = []
    for note in _notes(path).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            holder = Holder(**json.loads(note.read_text(encoding="utf-8")))
            os.kill(holder.pid, 0)
            found.append(holder)
    return sorted(found, key=lambda holder: (holder.since, holder.pid))


@contextlib.contextmanager
def _noted(path: Path) -> Iterator[None]:
    """Write down that this process holds the lock at ``path``."""
    note = _notes(path) / f"{os.getpid()}.json"
    holder = Holder(os.getpid(), _command(), time.time())
    temporary = note.with_suffix(".tmp")
    # Only messages use it: locking works without it.
    try:
        note.parent.mkdir(exist_ok=True)
        temporary.write_text(json.dumps(vars(holder)), encoding="utf-8")
        temporary.replace(note)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def _say(path: Path, waiting: str) -> None:
    from core import console

    who = "; ".join(map(str, holders(path)))
    console.note(f"{waiting}: held by {who}" if who else waiting)


def _try(path: Path, kind: int) -> int | None:
    """A handle with the lock; ``None`` if others have it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(handle), path.stat())
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            same = False
        except BaseException:
            os.close(handle)
            raise
        if same:
            return handle
        os.close(handle)  # the file was removed meanwhile: the next process would lock another one


def _acquire(path: Path, kind: int, waiting: str) -> int:
    begun, said = time.monotonic(), 0.0
    try:
        while (handle := _try(path, kind)) is None:
            passed = time.monotonic() - begun
            if waiting and passed >= 1 and (not said or passed - said >= _SAY_S):
                _say(path, waiting)
                said = passed
            time.sleep(_POLL_S)
    finally:
        _WAITED.seconds += time.monotonic() - begun
    return handle


_HELD: set[int] = set()
"""Handles of the locks that this process holds."""


def _leave_to_the_first() -> None:
    """A copy of this process holds none of its locks: with the handles open, they would last as long as the copy."""
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_leave_to_the_first)


@contextlib.contextmanager
def _open(handle: int) -> Iterator[None]:
    """Keep the lock of ``handle`` for the block."""
    _HELD.add(handle)
    try:
        yield
    finally:
        if handle in _HELD:
            _HELD.remove(handle)
            os.close(handle)


@contextlib.contextmanager
def held(path: Path, waiting: str = "", *, shared: bool = False) -> Iterator[None]:
    """Hold the lock at ``path``.

    Args:
        waiting: printed after a second, with the holder, and again every minute.
        shared: hold it together with others that share it.
    """
    handle = _acquire(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, waiting)
    with _open(handle), _noted(path):
        yield


@contextlib.contextmanager
def attempt(path: Path) -> Iterator[bool]:
    """Hold the lock at ``path`` alone if it is free; yields whether it is held."""
    handle = _try(path, fcntl.LOCK_EX)
    if handle is None:
        yield False
        return
    with _open(handle), _noted(path):
        yield True
