"""The output of other programs: read as it comes, with only its beginning and its end kept in memory.

A compiler, an emulator or a package manager that prints without end would otherwise take all of this machine's memory.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO, AnyStr

PIECE = 1 << 16
ANSWER = 64 << 20
"""Bytes of standard output that a caller gets as an answer; a program that prints more is ended."""
EDGE = 1 << 20
"""Bytes kept of the beginning and of the end of messages."""
LINE = 1 << 16
"""Characters after which a line is split."""


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


def read_back(file: IO[bytes], most: int = ANSWER) -> tuple[str, bool]:
    """The last ``most`` bytes that a program wrote into ``file``, as text, and whether that is all of it."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - most))
    return file.read(most).decode(errors="replace"), size <= most
