"""Limits on everything that a device sends: streams, answers, files that come back.

A device may print without end, answer a question with a gigabyte, or send a byte each minute. The kept output has a
limit in bytes; the reader checks the deadline between two pieces, and each piece is small.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from core.errors import AnswerError
from core.files import disk_errors

PIECE = 1 << 18
"""Bytes read at once: the deadline is checked after each piece."""

MAX_OUTPUT = 64 << 20
"""Bytes of output accepted from one command that a user runs (both streams together)."""
ANSWER = 4 << 20
"""The same for scripts of ours: a probe, a survey, a lock."""
RUN = 16 << 20
"""The same for a deploy's own run: what its runner says, and results small enough to come with its end."""
LISTING = 32 << 20
"""The same for the list of everything in a store: 100,000 files have some 15 MB of it."""

MARK = b"@@slipway\n"
"""Comes on both streams before what a command says: a login's own files (``.bashrc``, ``.cshrc``) may print, too."""
GREETING = 64 << 10
"""Bytes that a login may print before."""


class Heard:
    """What a command has said so far; both streams together at most ``limit`` bytes."""

    def __init__(self, name: str, limit: int = MAX_OUTPUT) -> None:
        self.name, self.limit = name, limit
        self.doing = ""
        """Completes "... while" in the error."""
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.deaf = False
        """Whether nothing of it is wanted any more."""
        self._greetings: dict[int, bytearray] = {}
        """What came on a stream whose mark did not come yet."""

    def await_mark(self) -> None:
        """Keep only what comes behind `MARK`."""
        self._greetings = {id(self.stdout): bytearray(), id(self.stderr): bytearray()}

    @property
    def begun(self) -> bool:
        """Whether the command itself has begun to speak, not only the login before it."""
        return id(self.stdout) not in self._greetings

    @property
    def greeting(self) -> str:
        """The last of what the login printed in place of the mark, to be quoted; empty once the mark was there."""
        said = b"".join(self._greetings.values()) if not self.begun else b""
        return said[-600:].decode(errors="replace").strip()

    def take(self, stream: bytearray, data: bytes | bytearray) -> None:
        """Add ``data`` to one of the two streams.

        Raises:
            AnswerError: that is too much; earlier output is dropped too.
        """
        if (greeting := self._greetings.get(id(stream))) is not None:
            greeting += data
            before, mark, data = greeting.partition(MARK)
            if len(before) > GREETING and not self.deaf:
                raise too_much(self.name, GREETING, "logging in")
            if mark:
                del self._greetings[id(stream)]
            elif self.deaf:
                del greeting[: -len(MARK)]
        if self.deaf:
            return
        if len(self.stdout) + len(self.stderr) + len(data) > self.limit:
            self.forget()
            raise too_much(self.name, self.limit, self.doing)
        stream += data

    def forget(self) -> None:
        """Keep nothing from now on: further output is read, so that the command can end, and dropped."""
        self.deaf = True
        self.stdout.clear()
        self.stderr.clear()


def too_much(name: str, limit: int, doing: str = "") -> AnswerError:
    """The error for a device that says more than it may."""
    most = f"{limit >> 20} MiB" if limit >> 20 else f"{limit >> 10} KiB"
    return AnswerError(
        f"{name} printed more than {most}{f' while {doing}' if doing else ''}.",
        "a program there prints without end, or it is not the device that it should be; what ran was ended",
        "see what its login and its programs print: ./inv devices.list names it",
    )


@contextlib.contextmanager
def receiving(local: Path, limit: int, device: str) -> Iterator[Callable[[bytes], None]]:
    """Write a device's file of at most ``limit`` bytes that comes piece by piece; gives what takes each piece.

    It gets its name when the block ends well.

    Raises:
        AnswerError: longer than ``limit``. HostError: no room for it here.
    """
    had = 0
    handle, temporary = tempfile.mkstemp(prefix=f".{local.name}.", suffix=".part", dir=local.parent)
    try:
        with os.fdopen(handle, "wb") as file:

            def take(piece: bytes) -> None:
                nonlocal had
                had += len(piece)
                if had > limit:
                    raise AnswerError(
                        f"{local.name} on {device} is longer than expected.",
                        f"more than {limit:,} bytes; nothing of it was kept",
                        f"./inv devices.verify {device}, then the same command again",
                    )
                with disk_errors(f"fetching {local.name}"):
                    file.write(piece)

            yield take
        Path(temporary).replace(local)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def open_ordinary(path: str | Path) -> int:
    """A descriptor to read an ordinary file; a pipe or a device of that name is refused, not waited for.

    Raises:
        OSError: missing, not allowed, or not an ordinary file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not an ordinary file")
    return handle


def natural(text: str, most: int = 1 << 63) -> int | None:
    """A number of decimal digits, at most ``most``; ``None`` for anything else.

    `str.isdigit` also takes ``²``, and `int` refuses 5,000 digits with an error of its own.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    value = int(text)
    return value if value <= most else None
