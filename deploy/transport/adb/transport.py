"""The transport over adb: commands by the shell protocol (exit codes, separate streams), files by its sync service.

Protocol: SERVICES.TXT, shell_protocol.h and SYNC.TXT of platform/packages/modules/adb. Android 7 (API level 24) and
newer speak it. adbutils' own push sends 4 KiB at a time, each behind a round of system calls; here a chunk is as long
as the protocol allows, and one stream serves all files of a connection.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from core.errors import AnswerError, NotSupportedError, SlipwayError, TransferError, UnreachableError
from deploy.transport import base
from deploy.transport.adb.library import AdbError
from deploy.transport.adb.server import Server, attach
from deploy.transport.base import Progress, Transport, marked, quoted, refusal
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard, receiving

_CHUNK = 64 << 10
"""Bytes in one DATA message: SYNC_DATA_MAX."""
_PIECE = 4 * _CHUNK
"""Bytes sent at once: each call costs a round trip through adb's server."""
_SILENCE = 60.0
"""Seconds without any progress after which a transfer is given up."""
_LONGEST_PATH = 1024
"""Bytes of a path: the service's own limit."""
_MODE = 0o100644
_SYNC_HEAD = struct.Struct("<4sI")


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
            connection.sendall(_SYNC_HEAD.pack(b"DONE", int(time.time()) & 0xFFFFFFFF))
            _answer(connection, deadline)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        with self._guarded(local.name, remote, deadline) as connection, receiving(local, limit, self._name) as take:
            _send(connection, b"RECV", _path(remote))
            while True:
                kind, size = _SYNC_HEAD.unpack(_exactly(connection, _SYNC_HEAD.size, deadline))
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
    connection.sendall(_SYNC_HEAD.pack(kind, len(payload)) + payload)


def _messages(piece: bytes) -> bytes:
    """``piece`` in DATA messages."""
    chunks = (piece[at : at + _CHUNK] for at in range(0, len(piece), _CHUNK))
    return b"".join(_SYNC_HEAD.pack(b"DATA", len(chunk)) + chunk for chunk in chunks)


def _answer(connection: socket.socket, deadline: Deadline) -> None:
    kind, size = _SYNC_HEAD.unpack(_exactly(connection, _SYNC_HEAD.size, deadline))
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


HOME = "/data/local/tmp"
"""The folder in which the user shell may write and run programs. Android lacks /tmp: TMPDIR points here."""

_OPEN_SECONDS = 30.0
_HEAD = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = 32 << 10
"""Bytes of input in one packet."""
_MOST = 4 << 20
"""Bytes of output in one packet at most: adb's own MAX_PAYLOAD is 1 MiB."""
_LONGEST = 0xFFFF
"""Bytes of a request to adb's server: its length stands in four hex digits."""
_TOUCH_SECONDS = 2.0


class AdbChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, stream: Any, name: str, used: Callable[[], None]) -> None:
        self._stream = stream
        self._socket = stream.conn
        self._name = name
        self._used = used
        self._buffer = bytearray()
        self.heard = Heard(name)

    def pump(self, seconds: float) -> int | None:
        self._used()
        if not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            data = self._socket.recv(PIECE)
        except OSError as error:
            raise broken(self._name, error) from error
        if not data:
            raise broken(self._name, None)
        self._buffer += data
        return self._packets()

    def _packets(self) -> int | None:
        """Parse the received packets; the exit status if it is among them."""
        at, code = 0, None
        while len(self._buffer) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._buffer, at)
            if kind > _CLOSE_STDIN or size > _MOST:
                raise AnswerError(
                    f"{self._name} does not speak adb's shell protocol.",
                    f"a packet of kind {kind} with {size:,} bytes",
                    "the same command again; if it stays so: adb kill-server",
                )
            end = at + _HEAD.size + size
            if len(self._buffer) < end:
                break
            payload = self._buffer[at + _HEAD.size : end]
            if kind == _STDOUT:
                self.heard.take(self.heard.stdout, payload)
            elif kind == _STDERR:
                self.heard.take(self.heard.stderr, payload)
            elif kind == _EXIT and payload:
                code = payload[0]
            at = end
        del self._buffer[:at]
        return code

    def feed(self, data: bytes, seconds: float) -> None:
        """Write to the command's input.

        Raises:
            UnreachableError: the connection broke, or the device took nothing for too long.
        """
        self._socket.settimeout(max(seconds, 0.1))
        try:
            self._socket.sendall(_HEAD.pack(_STDIN, len(data)) + data)
        except OSError as error:
            raise broken(self._name, error) from error

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(_HEAD.pack(_STDIN, len(data)) + data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(_HEAD.pack(_CLOSE_STDIN, 0))

    def close(self) -> None:
        """Close the stream: adbd closes the command's input, and the supervisor ends what still runs."""
        with contextlib.suppress(OSError, AdbError):
            self._socket.close()


class AdbTransport(Transport):
    """A device over adb."""

    longest = _LONGEST - 1000
    """The rest of a request is the service's own name."""

    def __init__(self, server: Server, serial: str, name: str, touch: Callable[[], None] | None = None) -> None:
        self.name = name
        self.serial = serial
        self.server = server
        self._touch = touch
        self._touched = 0.0
        self._files = Files(self._open, name)

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> AdbChannel:
        service = f"shell,v2,raw:export HOME={HOME} TMPDIR={HOME}; cd {HOME}; exec {quoted(marked(argv))}"
        if len(service.encode()) > _LONGEST:
            raise TransferError(
                f"A command for {self.name} is longer than adb takes.",
                f"{len(service):,} bytes; {_LONGEST:,} go",
                "fewer files in one bundle",
            )
        try:
            stream = self._open(service, deadline.left(_OPEN_SECONDS))
        except (AdbError, OSError, EOFError) as error:
            deadline.check(f"asking {self.name} to run a command")
            raise broken(self.name, error) from error
        stream.conn.settimeout(_OPEN_SECONDS)
        channel = AdbChannel(stream, self.name, self._used)
        channel.heard.await_mark()
        return channel

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """See `deploy.transport.base.Transport`."""

        def counted(count: int) -> None:
            self._used()
            progress(count)

        if offset:
            self._append(local, remote, counted, deadline, offset)
        else:
            self._files.put(local, remote, counted, deadline)

    def _append(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int) -> None:
        """Resume a file: the sync service sends only whole files, but a command's input takes any bytes."""
        doing = f"uploading {local.name} to {self.name}"
        deadline.check(doing)
        channel = self.start(["sh", "-c", 'exec cat >>"$1"', "slipway", remote])
        code: int | None = None
        try:
            with local.open("rb") as source:
                source.seek(offset)
                while code is None and (chunk := source.read(_PACKET)):
                    deadline.check(doing)
                    channel.feed(chunk, deadline.left(_OPEN_SECONDS))
                    progress(len(chunk))
                    code = channel.pump(0)
            channel.end_input()
            while code is None:
                deadline.check(doing)
                code = channel.pump(deadline.left(1.0))
        finally:
            channel.close()
        if code:
            raise refusal(self.name, local.name, remote, channel.heard.stderr.decode(errors="replace").strip())

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        self._used()
        self._files.get(remote, local, limit, deadline)

    def require_shell(self, deadline: Deadline = NEVER) -> None:
        """Check that the device speaks the shell protocol.

        Raises:
            NotSupportedError: it is older than Android 7. UnreachableError: it does not answer.
        """
        try:
            seconds = max(0.1, deadline.left(10))
            features = set(self.server.ask(f"host-serial:{self.serial}:features", seconds).split(","))
        except (AdbError, OSError, ValueError) as error:
            deadline.check(f"asking {self.name} what it speaks")
            raise broken(self.name, error) from error
        if "shell_v2" not in features:
            raise NotSupportedError(
                f"{self.name} is too old: its adb gives neither exit codes nor separate streams.",
                "Android 7.0 (API level 24) is the first that does",
                "choose another device: ./inv devices.list",
            )

    def close(self) -> None:
        """Close the streams; adb's server keeps running, because others may use it."""
        self._files.close()

    def _open(self, service: str, seconds: float) -> Any:
        """A stream to a service of the device; reads and writes on it may take ``seconds``."""
        self._used()
        return self.server.open_service(self.serial, service, seconds)

    def _used(self) -> None:
        """Mark a virtual device as used, at most once in a few seconds."""
        if self._touch is not None and time.monotonic() - self._touched > _TOUCH_SECONDS:
            self._touched = time.monotonic()
            self._touch()


def attached(
    server: Server, name: str, serial: str = "", touch: Callable[[], None] | None = None, deadline: Deadline = NEVER
) -> AdbTransport:
    """The device ``serial`` of ``server`` (empty: the only one there), called ``name``; ``touch`` says that it is used.

    Raises:
        ConfigError: several devices and none chosen. AuthenticationError: it has not allowed this computer.
        UnreachableError: not there. NotSupportedError: older than Android 7. HostError: no adb here.
    """
    transport = AdbTransport(server, attach(server, serial, deadline), name, touch)
    transport.require_shell(deadline)
    return transport
