"""Several sessions to one device, and a command in each.

There is one connection as long as its server allows, then there are further ones: a server may limit the sessions of a
connection (OpenSSH's ``MaxSessions``, 10 unless changed, 1 on hardened devices). A deploy needs up to four at once: the
lock's holder, a command, a file transfer, and one to end what hangs.

sshd hands each command as text to the login's shell, whatever shell that is. Two things may come between. The shell's
own files may print (``echo`` in ``.bashrc``, ``.zshenv``, ``.cshrc``): every command prints a mark first, and what
comes before it is no answer. And the shell may not be a POSIX one. csh ends a quote at the line's end and would run the
rest of a script as commands of its own; fish drops backslashes. The first two lines make both leave at once, with
nothing done. Then the same command comes once more in words that mean the same to every shell: on one line, without a
backslash that counts, a quote or an exclamation mark.
"""

from __future__ import annotations

import contextlib
import re
import select
import threading
import time
from collections.abc import Callable, Sequence

import paramiko

from core.errors import AnswerError, RunError, UnreachableError
from core.plain import says
from deploy.transport import base
from deploy.transport.base import marked, quoted
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.connect import LOST, Connection, closed_after

CONNECTIONS = 5
"""Maximum number of connections to one device; servers limit new ones too (``MaxStartups``)."""

PULSE = 10.0
"""Seconds between two keep-alive requests."""
SILENCE = 60.0
"""Seconds without an answer after which a connection is given up: an answer may have to wait behind an upload in the
buffers of a slow link."""


class Sessions:
    """The connections to one device."""

    def __init__(self, first: Connection, again: Callable[[], Connection]) -> None:
        self._again = again
        self._all = [first]
        self._pulses = [Pulse(first.transport)]
        self.not_posix = False
        """Whether the login's shell left without running a command."""

    @property
    def active(self) -> bool:
        """Whether the first connection, which proves the device reachable, still stands."""
        return self._all[0].transport.is_active()

    @property
    def patient(self) -> bool:
        """Whether the server is one that is known to take long commands."""
        return any(name in self.version for name in ("openssh", "asyncssh"))

    @property
    def version(self) -> str:
        """What the server says of itself, in small letters: ``ssh-2.0-openssh_9.2p1 debian-2``."""
        return str(self._all[0].transport.remote_version).lower()

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
        self._pulses.append(Pulse(further.transport))
        return further.transport.open_session(timeout=seconds)

    def close(self) -> None:
        """Close all connections; commands still running lose their lifeline and end."""
        for pulse in self._pulses:
            pulse.stop()
        for connection in reversed(self._all):
            with contextlib.suppress(*LOST):
                connection.close()


class Pulse:
    """Sends keep-alive requests; closes a connection that does not answer them.

    TCP alone does not notice a device behind a jump host that lost its power.
    """

    def __init__(self, transport: AuthTransport) -> None:
        self._transport = transport
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="ssh-pulse", daemon=True).start()

    def stop(self) -> None:
        """Stop."""
        self._stop.set()

    def _watch(self) -> None:
        transport = self._transport
        while not self._stop.wait(PULSE) and transport.is_active():
            patience = threading.Timer(SILENCE, transport.close)
            patience.daemon = True
            patience.start()
            with contextlib.suppress(*LOST):
                # A refusal is an answer too; paramiko returns when the connection ends.
                transport.global_request("keepalive@openssh.com", wait=True)
            patience.cancel()


_PATIENCE = 30.0
"""Seconds for a session, and for its command, to be confirmed."""


_LEAVE = 'test -z "$shell"||exec sh -c "exit 97"\ntest -z "$FISH_VERSION"||exec sh -c "exit 97"\nexec '
"""``$shell`` is csh's own. csh goes on behind ``exit``, and drops a line with a variable that is not set."""
_CODED = re.compile(r"[^A-Za-z0-9 @%+=:,./_\"$(){}<>|&;*?\[\]~#^`-]")
_PIECE = re.compile(r"(?:\\0[0-7]{3}|[^\\]){1,180}")
"""A word that a csh with room for 1,024 letters takes."""

ROOM = 120
"""Bytes by which a line is longer than the command, for a POSIX shell."""


def spoken(argv: Sequence[str], sessions: Sessions) -> str:
    """``argv`` with the mark, for a POSIX shell as long as none is known to be another; any other leaves at once."""
    return portable(argv) if sessions.not_posix else _LEAVE + quoted(marked(argv))


def portable(argv: Sequence[str]) -> str:
    """``argv`` with the mark, for any shell; a process more, and a fifth longer."""
    code = _CODED.sub(lambda match: "".join(f"\\0{byte:03o}" for byte in match[0].encode()), quoted(marked(argv)))
    words = " ".join(f"'{piece}'" for piece in _PIECE.findall(f"exec {code}"))
    return f"""sh -c 'eval "$(printf %b "$@")"' slipway {words}"""


def broken(name: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    return base.broken(name, "it went off the network, was restarted, or its sshd ended", error)


class SshChannel:
    """A command on the device; see `deploy.transport.base.Channel`."""

    def __init__(self, sessions: Sessions, name: str, what: str | Sequence[str], deadline: Deadline = NEVER) -> None:
        """Start ``what``: an argv, or a line that is for the login's own shell, and prints no mark."""
        self._name, self._sessions, self._deadline = name, sessions, deadline
        self.heard = Heard(name)
        self._portable = "" if isinstance(what, str) or sessions.not_posix else portable(what)
        """What is left to try."""
        if not isinstance(what, str):
            self.heard.await_mark()
        self._start(what if isinstance(what, str) else spoken(what, sessions))

    def _start(self, line: str) -> None:
        deadline = self._deadline
        try:
            self._channel = self._sessions.open(deadline.left(_PATIENCE))
            with closed_after(self._channel, deadline.left(_PATIENCE)):
                self._channel.exec_command(line)
        except LOST as error:
            deadline.check(f"asking {self._name} to run a command")
            raise broken(self._name, error) from error

    def pump(self, seconds: float) -> int | None:
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
            heard.await_mark()
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

    def send(self, data: bytes, seconds: float) -> None:
        self._portable = ""  # a second try would not get it
        self._channel.settimeout(seconds)
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:
            raise BrokenPipeError(str(error)) from error

    def end_input(self) -> None:
        self._portable = ""
        with contextlib.suppress(*LOST):
            self._channel.shutdown_write()

    def close(self) -> None:
        with contextlib.suppress(*LOST):
            self._channel.close()
