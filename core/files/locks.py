"""Locks that all ``./inv`` of one cache share: who waits is told who holds one, and waiting is timed separately.

The system frees a lock when its holder ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.1
_SAY_S = 60.0
"""Seconds between two messages of a long wait about who holds the lock."""


_WAITED = [0.0]


def waited() -> float:
    """How many seconds this process has waited for others' locks."""
    return _WAITED[0]


class Clock:
    """A clock from now on that leaves out waiting for others: ``12 s, after waiting 3 s for others``."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._waited = waited()

    def __str__(self) -> str:
        passed, waiting = time.monotonic() - self._begun, waited() - self._waited
        work = f"{passed - waiting:.0f} s"
        return f"{work}, after waiting {waiting:.0f} s for others" if waiting >= 1 else work


def holders(path: Path) -> list[int]:
    """The processes that hold the lock at ``path``, where the system lists them: Linux."""
    try:
        inode, listed = path.stat().st_ino, Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return []
    rows = [line.split() for line in listed.splitlines() if " FLOCK " in line]
    return sorted({int(row[4]) for row in rows if row[5].endswith(f":{inode}")})


def _command(pid: int) -> str:
    """What the user typed to start a process; empty if that cannot be seen."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    # ./inv passes its own folder on; nobody typed it.
    if "--search-root" in words:
        words = ["./inv", *words[words.index("--search-root") + 2 :]]
    text = " ".join(words).strip()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _say(path: Path, waiting: str) -> None:
    from core import console

    who = "; ".join(f"process {pid} ({_command(pid)})" for pid in holders(path))
    console.note(f"{waiting}: held by {who}" if who else waiting)


def taken(path: Path) -> int | None:
    """A handle with the lock; ``None`` if another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _acquire(path: Path, waiting: str) -> int:
    begun, said = time.monotonic(), 0.0
    try:
        while (handle := taken(path)) is None:
            passed = time.monotonic() - begun
            if waiting and passed >= 1 and (not said or passed - said >= _SAY_S):
                _say(path, waiting)
                said = passed
            time.sleep(_POLL_S)
    finally:
        _WAITED[0] += time.monotonic() - begun
    return handle


_HELD: set[int] = set()
"""Handles of the locks that this process holds."""


def _leave_to_the_first() -> None:
    """A copy of this process holds none of its locks: with the handles open, they would last as long as the copy."""
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_leave_to_the_first)


@contextlib.contextmanager
def held(path: Path, waiting: str = "") -> Iterator[None]:
    """Hold the lock at ``path``.

    Args:
        waiting: printed after a second, with the holder, and again every minute.
    """
    handle = _acquire(path, waiting)
    _HELD.add(handle)
    try:
        yield
    finally:
        if handle in _HELD:
            _HELD.remove(handle)
            os.close(handle)
