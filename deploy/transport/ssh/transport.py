"""The transport over SSH: paramiko's connection, commands in channels of their own, and files.

Files go to the device by SFTP with pipelined requests, or a plain ``cat`` where the server has no SFTP; from the device
by ``cat``, which is one round trip. By default paramiko waits for the answer to each write, which is ten times slower
on a link with latency; one SFTP channel serves all files of a connection. Its read-ahead has a thread of its own, which
prints a traceback when the connection breaks.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paramiko

from core import console
from core.errors import SlipwayError
from deploy.transport.base import Progress, Transport, is_full, refusal, silent
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import GREETING, MARK, natural, receiving
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import connect
from deploy.transport.ssh.sessions import ROOM, Sessions, SshChannel, broken, spoken

_CHUNK = 128 << 10
"""Bytes in one write. paramiko's own 32 KiB make four times the requests, which a slow device feels; OpenSSH's server
takes messages of up to 256 KiB (SFTP_MAX_MSG_LENGTH in its sftp-common.h)."""
_SILENCE = 60.0
"""Seconds without any answer after which a transfer is given up."""
_OPEN = 30.0
"""Seconds for a session to be granted."""
_LOOK = 10.0
"""Seconds to find out why a transfer failed."""
_SMALL = 256 << 10
"""A file system with less than this left counts as full when a write fails without saying why."""


class _Client(paramiko.SFTPClient):
    """paramiko's, behind what a login's shell prints before the server that it starts."""

    _begun = False

    def _read_all(self, n: int) -> bytes:
        """Called by paramiko. The server's first bytes are a length, whose highest byte is 0; no greeting has one."""
        first = b""
        for _ in range(GREETING):
            if self._begun:
                break
            first = super()._read_all(1)  # type: ignore[misc]
            self._begun = first == b"\0"
        found: bytes = first + super()._read_all(n - len(first))  # type: ignore[misc]
        return found


class Files:
    """The file side of one SSH connection."""

    def __init__(self, sessions: Sessions, name: str) -> None:
        self._sessions = sessions
        self._name = name
        self._sftp: paramiko.SFTPClient | None = None
        self._channel: paramiko.Channel | SshChannel | None = None
        """What a transfer is waiting on."""
        self._no_sftp = False

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        with self._guarded(local.name, remote, deadline):
            sftp = self._open(deadline)
            if sftp is None:
                self._put_cat(local, remote, progress, deadline, offset)
            else:
                self._put_sftp(sftp, local, remote, progress, deadline, offset)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        with self._guarded(local.name, remote, deadline), receiving(local, limit, self._name) as take:
            self._get_cat(remote, take, deadline)

    @contextlib.contextmanager
    def _guarded(self, name: str, remote: str, deadline: Deadline) -> Iterator[None]:
        """Our errors for paramiko's. When the time is up, a timer closes the channel, so that every wait ends."""
        doing = f"moving {name} to or from {self._name}"
        deadline.check(doing)
        timer = threading.Timer(deadline.left(threading.TIMEOUT_MAX), self._abort)
        timer.daemon = True
        timer.start()
        try:
            yield
        except BaseException as error:
            # A write cut short leaves the SFTP conversation in the middle of a packet: do not use it again.
            self.close()
            if isinstance(error, (OSError, EOFError, paramiko.SSHException)):
                raise (deadline.error(doing) if deadline.over else self._explain(error, name, remote)) from error
            raise
        finally:
            timer.cancel()

    def _abort(self) -> None:
        if (channel := self._channel) is not None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                channel.close()

    def close(self) -> None:
        """Close the SFTP channel; the next transfer opens another."""
        if self._sftp is not None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._sftp.close()
            self._sftp = self._channel = None

    def _open(self, deadline: Deadline) -> paramiko.SFTPClient | None:
        """The SFTP channel, or None when the server has none."""
        if self._sftp is None and not self._no_sftp:
            channel = self._channel = self._session(deadline)
            try:
                channel.invoke_subsystem("sftp")
                self._sftp = _Client(channel)
            except (paramiko.SSHException, paramiko.SFTPError, EOFError):
                channel.close()
                if not self._sessions.active or deadline.over:
                    raise
                self._no_sftp = True
                console.note(f"{self._name} has no SFTP server: its files go through cat")
        if self._sftp is not None and (opened := self._sftp.get_channel()) is not None:
            self._channel = opened
            opened.settimeout(max(1.0, deadline.left(_SILENCE)))
        return self._sftp

    def _session(self, deadline: Deadline) -> paramiko.Channel:
        channel = self._sessions.open(deadline.left(_OPEN))
        channel.settimeout(max(1.0, deadline.left(_SILENCE)))
        return channel

    def _put_sftp(
        self, sftp: paramiko.SFTPClient, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int
    ) -> None:
        with local.open("rb") as source:
            # No `with` for the sink: after Ctrl-C in mid-packet a regular close would wait for ever.
            sink = sftp.open(remote, "r+b" if offset else "wxb")
            if offset:
                source.seek(offset)
                sink.seek(offset)
            sink.MAX_REQUEST_SIZE = _CHUNK
            sink.set_pipelined(True)
            chunk = source.read(_CHUNK)
            while chunk:
                deadline.check(f"uploading {local.name}")
                following = source.read(_CHUNK)
                if not following:
                    # Only a write that is not pipelined collects the answers still under way, and with them a
                    # disk that filled up in the meantime; closing drops them.
                    sink.set_pipelined(False)
                sink.write(chunk)
                progress(len(chunk))
                chunk = following
            sink.close()
        wrote, size = sftp.stat(remote).st_size, local.stat().st_size
        if wrote != size:
            raise OSError(f"{wrote} of {size} bytes were stored")

    def _put_cat(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int) -> None:
        channel = self._channel = self._session(deadline)
        try:
            script = 'exec cat >>"$1"' if offset else 'set -C; exec cat >"$1"'
            channel.exec_command(spoken(["sh", "-c", script, "slipway", remote], self._sessions))
            with local.open("rb") as source:
                source.seek(offset)
                while chunk := source.read(_CHUNK):
                    deadline.check(f"uploading {local.name}")
                    channel.sendall(chunk)
                    progress(len(chunk))
            channel.shutdown_write()
            said = channel.makefile_stderr("rb").read(GREETING + 4096).rpartition(MARK)[2]
            if channel.recv_exit_status() != 0:
                raise OSError(said.decode(errors="replace").strip())
        finally:
            channel.close()

    def _get_cat(self, remote: str, take: Callable[[bytes], None], deadline: Deadline) -> None:
        # A pipe of that name would keep `cat` waiting there for ever, connection or not.
        script = 'if [ -f "$1" ]; then exec cat <"$1"; else echo no ordinary file >&2; exit 1; fi'
        words = ["sh", "-c", script, "slipway", remote]
        channel = self._channel = SshChannel(self._sessions, self._name, words, deadline)
        try:
            silence, code = Deadline.after(_SILENCE), None
            while code is None:
                code = channel.pump(1.0)
                if channel.heard.stdout:
                    take(bytes(channel.heard.stdout))
                    channel.heard.stdout.clear()
                    silence = Deadline.after(_SILENCE)
                deadline.check(f"fetching {remote}")
                if silence.over:
                    raise TimeoutError(f"nothing came for {_SILENCE:.0f} s")
            if code != 0:
                raise OSError(channel.heard.stderr[-4096:].decode(errors="replace").strip())
        finally:
            channel.close()

    def _explain(self, error: Exception, file: str, remote: str) -> SlipwayError:
        """Our error for what went wrong with a transfer. SFTP's version 3 has no code for a full disk: look."""
        if not self._sessions.active or isinstance(error, EOFError):
            return broken(self._name, error)
        text = str(error) or type(error).__name__
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or is_full(text) or self._is_full(remote)
        if isinstance(error, TimeoutError) and not full:
            return silent(self._name, file, text)
        return refusal(self._name, file, remote, text, full)

    def _is_full(self, remote: str) -> bool:
        """Whether the file system of ``remote`` has next to nothing left."""
        words = ["sh", "-c", 'df -Pk "$1" | tail -n 1', "slipway", remote.rpartition("/")[0] or "/"]
        patience = Deadline.after(_LOOK)
        try:
            channel = SshChannel(self._sessions, self._name, words, patience)
            try:
                while channel.pump(patience.left(1.0)) is None:
                    patience.check("looking at the disk")
                left = natural(channel.heard.stdout.decode(errors="replace").split()[3])
            finally:
                channel.close()
        except (SlipwayError, OSError, EOFError, paramiko.SSHException, IndexError):
            return False
        return left is not None and left * 1024 < _SMALL


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
