"""The transport over adb: commands by the shell protocol (exit codes, separate streams), files by its sync service.

Protocol: SERVICES.TXT and shell_protocol.h of platform/packages/modules/adb. Android 7 (API level 24) and newer
speak it.
"""

from __future__ import annotations

import contextlib
import select
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.errors import AnswerError, NotSupportedError, TransferError
from deploy.transport.adb.files import Files, broken
from deploy.transport.adb.library import AdbError
from deploy.transport.adb.server import Server, attach
from deploy.transport.base import Progress, Transport, refusal
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard
from deploy.transport.supervise import marked, quoted

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
