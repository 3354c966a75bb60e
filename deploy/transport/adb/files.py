"""Files over adb: its sync service, one stream for all files of a connection.

Protocol: SYNC.TXT of platform/packages/modules/adb. adbutils' own push sends 4 KiB at a time, each behind a round of
system calls; here a chunk is as long as the protocol allows.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.errors import SlipwayError, TransferError, UnreachableError
from deploy.transport import base
from deploy.transport.adb.library import AdbError
from deploy.transport.base import Progress
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import receiving

_CHUNK = 64 << 10
"""Bytes in one DATA message: SYNC_DATA_MAX."""
_PIECE = 4 * _CHUNK
"""Bytes sent at once: each call costs a round trip through adb's server."""
_SILENCE = 60.0
"""Seconds without any progress after which a transfer is given up."""
_LONGEST_PATH = 1024
"""Bytes of a path: the service's own limit."""
_MODE = 0o100644
_HEAD = struct.Struct("<4sI")


def broken(name: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    return base.broken(name, "it was unplugged or restarted, its network went away, or adb's server was ended", error)


class Refused(Exception):  # noqa: N818 - never leaves this module
    """The device answered FAIL."""


class Files:
    """The file side of one device; ``open_stream`` gives a connection to a service of it."""

    def __init__(self, open_stream: Callable[[str, float], Any], name: str) -> None:
        self._open_stream = open_stream
        self._name = name
        self._stream: Any = None

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline) -> None:
        with self._guarded(local.name, remote, deadline) as connection, local.open("rb") as source:
            _send(connection, b"SEND", _path(remote) + f",{_MODE}".encode())
            while piece := source.read(_PIECE):
                connection.settimeout(max(0.1, deadline.left(_SILENCE)))
                if select.select([connection], [], [], 0)[0]:
                    _answer(connection, deadline)  # a refusal in mid-file: the rest is received and thrown away
                connection.sendall(_messages(piece))
                progress(len(piece))
            connection.sendall(_HEAD.pack(b"DONE", int(time.time()) & 0xFFFFFFFF))
            _answer(connection, deadline)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        with self._guarded(local.name, remote, deadline) as connection, receiving(local, limit, self._name) as take:
            _send(connection, b"RECV", _path(remote))
            while True:
                kind, size = _HEAD.unpack(_exactly(connection, _HEAD.size, deadline))
                if kind == b"DONE":
                    break
                if kind == b"FAIL":
                    raise Refused(_words(connection, size, deadline))
                if kind != b"DATA" or size > _CHUNK:
                    raise Refused(f"an unreadable answer: {kind!r}")
                take(_exactly(connection, size, deadline))

    def close(self) -> None:
        """Close the stream; the next transfer opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError, AdbError):
                stream.conn.close()

    @contextlib.contextmanager
    def _guarded(self, name: str, remote: str, deadline: Deadline) -> Iterator[socket.socket]:
        """The stream's socket, and our errors for its. After any error the stream is not used again."""
        doing = f"moving {name} to or from {self._name}"
        deadline.check(doing)
        try:
            if self._stream is None:
                self._stream = self._open_stream("sync:", max(0.1, deadline.left(_SILENCE)))
            yield self._stream.conn
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, EOFError, AdbError, Refused)):
                raise (deadline.error(doing) if deadline.over else self._explain(error, name, remote)) from error
            raise

    def _explain(self, error: Exception, file: str, remote: str) -> SlipwayError:
        text = str(error) or type(error).__name__
        if isinstance(error, Refused):
            return base.refusal(self._name, file, remote, text)
        if isinstance(error, OSError) and error.filename:
            return TransferError(
                f"{file} cannot be read or written on this machine.",
                str(error),
                "ls -l, for its permissions and its folder's; then the same command again",
            )
        if isinstance(error, TimeoutError):
            return base.silent(self._name, file, text)
        return broken(self._name, error)


def _path(remote: str) -> bytes:
    path = remote.encode()
    if len(path) > _LONGEST_PATH - len(f",{_MODE}"):
        raise TransferError(
            f"A path of {len(path)} bytes is too long for adb.", remote, "a shorter root in devices.toml"
        )
    return path


def _send(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    connection.sendall(_HEAD.pack(kind, len(payload)) + payload)


def _messages(piece: bytes) -> bytes:
    """``piece`` in DATA messages."""
    chunks = (piece[at : at + _CHUNK] for at in range(0, len(piece), _CHUNK))
    return b"".join(_HEAD.pack(b"DATA", len(chunk)) + chunk for chunk in chunks)


def _answer(connection: socket.socket, deadline: Deadline) -> None:
    kind, size = _HEAD.unpack(_exactly(connection, _HEAD.size, deadline))
    if kind != b"OKAY":
        raise Refused(_words(connection, size, deadline) if kind == b"FAIL" else f"an unreadable answer: {kind!r}")


def _words(connection: socket.socket, size: int, deadline: Deadline) -> str:
    return _exactly(connection, min(size, _CHUNK), deadline).decode(errors="replace")


def _exactly(connection: socket.socket, count: int, deadline: Deadline) -> bytes:
    """Exactly so many bytes, before the deadline."""
    data = bytearray()
    while len(data) < count:
        if deadline.over:
            raise TimeoutError("the time was over")
        connection.settimeout(max(0.1, deadline.left(_SILENCE)))
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise EOFError("the connection was closed")
        data += chunk
    return bytes(data)
