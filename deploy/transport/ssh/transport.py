"""The transport over SSH: several sessions to one device, and a command in each.

There is one connection as long as its server allows, then there are further ones: a server may limit the sessions of a
connection (OpenSSH's ``MaxSessions``, 10 unless changed, 1 on hardened devices). A deploy needs up to three at once:
the lock's holder, a run, and a file that goes to the run.

sshd hands each command as text to the login's shell, whatever shell that is. Its own files may print (``echo`` in
``.bashrc``, ``.zshenv``): every command prints a mark first, and what comes before it is no answer. A csh, which ends a
quote at the line's end and would run the rest of a script as commands of its own, leaves at the first line.
"""

from __future__ import annotations

import contextlib
import select
import shlex
import threading
import time
from collections.abc import Callable, Sequence

import paramiko

from core.errors import AnswerError, RunError, UnreachableError
from core.plain import says
from deploy.transport import base
from deploy.transport.base import Transport, marked
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import LOST, Connection, closed_after, connect

CONNECTIONS = 3
"""Maximum number of connections to one device; servers limit new ones too (``MaxStartups``)."""

PULSE = 10.0
"""Seconds between two keep-alive requests."""
SILENCE = 60.0
"""Seconds without an answer after which a connection is given up: an upload on a slow link may delay one."""


class Sessions:
    """The connections to one device."""

    def __init__(self, first: Connection, again: Callable[[], Connection]) -> None:
        self._again = again
        self._all = [first]
        self._pulses = [pulse(first.transport)]

    @property
    def first(self) -> AuthTransport:
        """The first connection, which proves the device reachable."""
        return self._all[0].transport

    def open(self, seconds: float = 30.0) -> paramiko.Channel:
        """A new session; on a further connection if the server refuses it on the existing ones.

        Raises:
            paramiko.SSHException, OSError, EOFError: the connection broke, or the server grants no more sessions.
        """
        refused: paramiko.ChannelException | None = None
        for connection in self._all:
            if connection is self._all[0] or connection.transport.is_active():
                try:
                    return connection.transport.open_session(timeout=seconds)
                except paramiko.ChannelException as error:
                    refused = error
        if len(self._all) >= CONNECTIONS:
            raise refused or EOFError("no session is granted")
        further = self._again()
        self._all.append(further)
        self._pulses.append(pulse(further.transport))
        return further.transport.open_session(timeout=seconds)

    def close(self) -> None:
        """Close all connections; commands still running lose their lifeline and end."""
        for stop in self._pulses:
            stop.set()
        for connection in reversed(self._all):
            with contextlib.suppress(*LOST):
                connection.close()


def pulse(transport: AuthTransport) -> threading.Event:
    """Send keep-alive requests until the returned event is set; close a connection that does not answer them.

    TCP alone does not notice a device behind a jump host that lost its power.
    """
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(PULSE) and transport.is_active():
            # A refusal is an answer too; paramiko returns when the connection ends.
            with contextlib.suppress(*LOST), closed_after(transport, SILENCE):
                transport.global_request("keepalive@openssh.com", wait=True)

    threading.Thread(target=watch, name="ssh-pulse", daemon=True).start()
    return stop


_PATIENCE = 30.0
"""Seconds for a session, and for its command, to be confirmed."""


_LEAVE = 'test -z "$shell"||exec sh -c "exit 97"\nexec '
"""``$shell`` is csh's own, which goes on behind ``exit``."""
ROOM = len(_LEAVE) + len(shlex.join(marked([])))
"""Bytes by which a line is longer than the command, at most."""


def broken(name: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    return base.broken(name, "it went off the network, was restarted, or its sshd ended", error)


class SshChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, sessions: Sessions, name: str, what: str | Sequence[str], deadline: Deadline = NEVER) -> None:
        """Start ``what``: an argv, or a line that is for the login's own shell, and prints no mark."""
        self._name = name
        self.heard = Heard(name)
        if not isinstance(what, str):
            self.heard.await_mark()
            what = _LEAVE + shlex.join(marked(what))
        try:
            self._channel = sessions.open(deadline.left(_PATIENCE))
            with closed_after(self._channel, deadline.left(_PATIENCE)):
                self._channel.exec_command(what)
        except LOST as error:
            deadline.check(f"asking {name} to run a command")
            raise broken(name, error) from error

    def pump(self, seconds: float) -> int | None:
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
        """Its exit status; the login's shell may have ended before the command began."""
        code, heard = int(self._channel.exit_status), self.heard
        if code >= 0 and not heard.begun and not heard.deaf:
            raise AnswerError(
                f"The login shell of {self._name} ran no command (exit {code}).",
                says(self._name, heard.greeting) or "it said nothing; csh cannot pass on a script",
                "give the user a shell there (chsh -s /bin/sh), or set another user in devices.toml",
            )
        if code >= 0:
            return code
        if not self._channel.get_transport().is_active():
            raise broken(self._name, None)
        raise RunError(
            f"The command's shell on {self._name} was ended by a signal.",
            "the device was short of memory, or someone ended it there",
            "the same command again; ./inv devices.list shows whether the device answers",
        )

    def send(self, data: bytes, seconds: float) -> None:
        self._channel.settimeout(seconds)
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:
            raise BrokenPipeError(str(error)) from error

    def end_input(self) -> None:
        with contextlib.suppress(*LOST):
            self._channel.shutdown_write()

    def close(self) -> None:
        with contextlib.suppress(*LOST):
            self._channel.close()


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
        """What the device's server says of itself, in small letters: ``ssh-2.0-openssh_9.2p1 debian-2``."""
        return str(self._sessions.first.remote_version).lower()

    @property
    def longest(self) -> int:
        return (_LONGEST if "openssh" in self.server or "asyncssh" in self.server else _SHORT) - ROOM

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        return SshChannel(self._sessions, self.name, argv, deadline)

    def close(self) -> None:
        self._sessions.close()


def open_ssh(address: Address, deadline: Deadline = NEVER) -> SshTransport:
    """Connect to ``address``."""
    return SshTransport(Sessions(connect(address, deadline), lambda: connect(address, deadline)), address)
