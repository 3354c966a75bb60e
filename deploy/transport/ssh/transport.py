"""The transport over SSH: paramiko's connections, with a command in each of their channels."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import connect
from deploy.transport.ssh.sessions import ROOM, Sessions, SshChannel

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

    @property
    def server(self) -> str:
        """The version that the device's server gives of itself."""
        return self._sessions.version

    @property
    def longest(self) -> int:
        return (_LONGEST if self._sessions.patient else _SHORT) - ROOM

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        return SshChannel(self._sessions, self.name, argv, deadline)

    def close(self) -> None:
        """Close the connections; commands still running lose their lifeline and end."""
        self._sessions.close()


def open_ssh(address: Address, deadline: Deadline = NEVER) -> SshTransport:
    """Connect to ``address``."""
    return SshTransport(Sessions(connect(address, deadline), lambda: connect(address, deadline)), address)
