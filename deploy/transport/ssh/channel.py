"""A command on a device over SSH, in a channel of its own."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator, Sequence

import paramiko

from core.errors import AnswerError, RunError, UnreachableError
from core.plain import says
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard
from deploy.transport.ssh import login
from deploy.transport.ssh.sessions import Sessions

_PATIENCE = 30.0
"""Seconds for a session, and for its command, to be confirmed."""


def broken(name: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    detail = f" ({error})" if error is not None and str(error) else ""
    return UnreachableError(
        f"The connection to {name} broke.",
        f"it went off the network, was restarted, or its sshd ended{detail}",
        "the same command again: what arrived whole is kept, the rest is cleaned up",
    )


class SshChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, sessions: Sessions, name: str, what: str | Sequence[str], deadline: Deadline = NEVER) -> None:
        """Start ``what``: an argv, or a line that is for the login's own shell and prints the mark."""
        self._name, self._sessions, self._deadline = name, sessions, deadline
        self.heard = Heard(name)
        self.stdout, self.stderr = self.heard.stdout, self.heard.stderr
        self._portable = "" if isinstance(what, str) or sessions.not_posix else login.portable(what)
        """What is left to try."""
        self._start(what if isinstance(what, str) else login.line(what, sessions))

    def _start(self, line: str) -> None:
        self.heard.await_mark()
        deadline = self._deadline
        try:
            self._channel = self._sessions.open(deadline.left(_PATIENCE))
            with _closed_after(self._channel, deadline.left(_PATIENCE)):
                self._channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            deadline.check(f"asking {self._name} to run a command")
            raise broken(self._name, error) from error

    def pump(self, seconds: float) -> int | None:
        """See `deploy.transport.base.Channel`."""
        end = time.monotonic() + seconds
        channel = self._channel
        if self._drain():
            return None
        if channel.eof_received or channel.closed:
            # All output is on this side; the status comes as a message of its own, or never when the line broke.
            if channel.status_event.wait(max(end - time.monotonic(), 0)) and not self._drain():
                return self._ended(self._status())
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

    def _ended(self, code: int) -> int | None:
        """``code``, unless the login's shell ended before the command began: then the other way to say it is tried."""
        heard, line = self.heard, self._portable
        if not heard.begun and line:
            self._portable, self._sessions.not_posix = "", True
            self._channel.close()
            self._start(line)
            return None
        if not heard.begun and not heard.deaf:
            raise AnswerError(
                f"The login shell of {self._name} ran no command (exit {code}).",
                says(self._name, heard.greeting) or "it said nothing",
                "give the user a shell there (chsh -s /bin/sh), or set another user in devices.toml",
            )
        return code

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
        self._portable = ""
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
