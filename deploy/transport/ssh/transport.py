"""The transport over SSH: paramiko's connection, one SFTP channel, commands in channels of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deploy.transport.base import Progress, Transport
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.ssh.channel import ROOM, SshChannel
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import connect
from deploy.transport.ssh.files import Files
from deploy.transport.ssh.sessions import Sessions

_LONGEST = 100_000
"""Bytes of a command for OpenSSH, which takes 256 KiB; a shell's single word may have 128 (Linux's MAX_ARG_STRLEN)."""
_SHORT = 9_000
"""The same for any other server: dropbear takes 9,000 (MAX_CMD_LEN in its sysoptions.h)."""


class SshTransport(Transport):
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
        return (_LONGEST if self._sessions.patient else _SHORT) - ROOM

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        return SshChannel(self._sessions, self.name, argv, deadline)

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        self._files.put(local, remote, progress, deadline, offset)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        self._files.get(remote, local, limit, deadline)

    def close(self) -> None:
        """Close the connections; commands still running lose their lifeline and end."""
        self._files.close()
        self._sessions.close()


def open_ssh(address: Address, deadline: Deadline = NEVER) -> SshTransport:
    """Connect to ``address``."""
    return SshTransport(Sessions(connect(address, deadline), lambda: connect(address, deadline)), address)
