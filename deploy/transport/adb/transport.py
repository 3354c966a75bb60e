"""The transport over adb: commands by the shell protocol, which has exit codes and separate streams.

Protocol: SERVICES.TXT and shell_protocol.h of platform/packages/modules/adb. Android 7 (API level 24) and newer speak
it.
"""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import struct
import time
from collections.abc import Callable, Sequence

from core.errors import AnswerError, NotSupportedError, TransferError, UnreachableError
from deploy.transport import base
from deploy.transport.adb.library import AdbError
from deploy.transport.adb.server import Server, attach
from deploy.transport.base import Transport, marked
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard


def broken(name: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    return base.broken(name, "it was unplugged or restarted, its network went away, or adb's server was ended", error)


HOME = "/data/local/tmp"
"""The folder in which the user shell may write and run programs. Android lacks /tmp: TMPDIR points here."""

_OPEN_SECONDS = 30.0
_HEAD = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_MOST = 4 << 20
"""Bytes of output in one packet at most: adb's own MAX_PAYLOAD is 1 MiB."""
_LONGEST = 0xFFFF
"""Bytes of a request to adb's server: its length stands in four hex digits."""
_TOUCH_SECONDS = 2.0


class AdbChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, stream: socket.socket, name: str, used: Callable[[], None]) -> None:
        self._socket = stream
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

    def send(self, data: bytes, seconds: float) -> None:
        self._used()
        self._socket.settimeout(max(seconds, 0.1))
        self._socket.sendall(_HEAD.pack(_STDIN, len(data)) + data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(_HEAD.pack(_CLOSE_STDIN, 0))

    def close(self) -> None:
        """Close the stream: adbd closes the command's input, and the supervisor ends what still runs."""
        with contextlib.suppress(OSError):
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

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> AdbChannel:
        service = f"shell,v2,raw:export HOME={HOME} TMPDIR={HOME}; cd {HOME}; exec {shlex.join(marked(argv))}"
        if len(service.encode()) > _LONGEST:
            raise TransferError(
                f"A command for {self.name} is longer than adb takes.",
                f"{len(service):,} bytes; {_LONGEST:,} go",
                "fewer files in one bundle",
            )
        self._used()
        try:
            stream = self.server.open_service(self.serial, service, deadline.left(_OPEN_SECONDS))
        except (AdbError, OSError, EOFError) as error:
            deadline.check(f"asking {self.name} to run a command")
            raise broken(self.name, error) from error
        stream.settimeout(_OPEN_SECONDS)
        channel = AdbChannel(stream, self.name, self._used)
        channel.heard.await_mark()
        return channel

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
        """Nothing is held open; adb's server keeps running, because others may use it."""

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
