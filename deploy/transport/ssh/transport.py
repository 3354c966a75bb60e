"""The transport over SSH: paramiko's connection, one SFTP channel, commands in channels of their own."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from core.errors import RunError
from deploy.transport.base import Progress
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import connect
from deploy.transport.ssh.files import Files, broken
from deploy.transport.ssh.sessions import Sessions
from deploy.transport.supervise import quoted

if TYPE_CHECKING:
    from typing_extensions import Self


_PATIENCE = 30.0
"""Seconds for a session, and for its command, to be confirmed."""


class SshChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, sessions: Sessions, name: str, line: str, deadline: Deadline = NEVER) -> None:
        """Start what the login's shell makes of ``line``."""
        self._name = name
        self.heard = Heard(name)
        self.stdout, self.stderr = self.heard.stdout, self.heard.stderr
        try:
            self._channel = sessions.open(deadline.left(_PATIENCE))
            with _closed_after(self._channel, deadline.left(_PATIENCE)):
                self._channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            deadline.check(f"asking {name} to run a command")
            raise broken(name, error) from error

    def pump(self, seconds: float) -> int | None:
        """See `deploy.transport.base.Channel`."""
        end = time.monotonic() + seconds
        channel = self._channel
        if self._drain():
            return None
        if channel.eof_received or channel.closed:
            # All output is on this side; the status comes as a message of its own, or never when the line broke.
            if channel.status_event.wait(max(end - time.monotonic(), 0)) and not self._drain():
                return self._status()
            return None
        select.select([channel.fileno()], [], [], max(end - time.monotonic(), 0))
        self._drain()
        return None

    def _drain(self) -> bool:
        """Take a piece of each stream that has data; whether any had."""
        channel, any_came = self._channel, False
        if channel.recv_ready():
            self.heard.take(self.heard.stdout, channel.recv(PIECE))
            any_came = True
        if channel.recv_stderr_ready():
            self.heard.take(self.heard.stderr, channel.recv_stderr(PIECE))
            any_came = True
        return any_came

    def _status(self) -> int:
        code = int(self._channel.exit_status)
        if code >= 0:
            return code
        if not self._channel.get_transport().is_active():
            raise broken(self._name, None)
        raise RunError(
            f"The command's shell on {self._name} was ended by a signal.",
            "the device was short of memory, or someone ended it there",
            "the same command again; ./inv devices.list shows whether the device answers",
        )

    def send(self, data: bytes) -> None:
        """See `deploy.transport.base.Channel`."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.sendall(data)

    def end_input(self) -> None:
        """See `deploy.transport.base.Channel`."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        """See `deploy.transport.base.Channel`."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


@contextlib.contextmanager
def _closed_after(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Close the channel when the time is up: otherwise paramiko waits for an answer for ever."""
    timer = threading.Timer(seconds, channel.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_LONGEST = 100_000
"""Bytes of a command for OpenSSH, which takes 256 KiB; a shell's single word may have 128 (Linux's MAX_ARG_STRLEN)."""
_SHORT = 8_900
"""The same for any other server: dropbear takes 9,000 (MAX_CMD_LEN in its sysoptions.h)."""


class SshTransport:
    """A device over SSH."""

    def __init__(self, sessions: Sessions, address: Address) -> None:
        self.name = address.device
        self.address = address
        self._sessions = sessions
        self._files = Files(sessions, address.device)

    @property
    def server(self) -> str:
        """The version that the device's server gives of itself."""
        return self._sessions.version

    @property
    def longest(self) -> int:
        """See `deploy.transport.base.Transport`."""
        return _LONGEST if self._sessions.patient else _SHORT

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        """See `deploy.transport.base.Transport`."""
        return SshChannel(self._sessions, self.name, quoted(argv), deadline)

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """See `deploy.transport.base.Transport`."""
        self._files.put(local, remote, progress, deadline, offset)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        """See `deploy.transport.base.Transport`."""
        self._files.get(remote, local, limit, deadline)

    def close(self) -> None:
        """Close the connections; commands still running lose their lifeline and end."""
        self._files.close()
        self._sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ssh(address: Address, deadline: Deadline = NEVER) -> SshTransport:
    """Connect to ``address``."""
    return SshTransport(Sessions(connect(address, deadline), lambda: connect(address, deadline)), address)
