"""Windows over SSH: its OpenSSH server, with cmd or PowerShell as the login's shell.

Windows has no POSIX shell, so it has no store, lock or supervisor of ours. A deploy has one folder below the login's
own, from its begin to its end. Files go there and back by SFTP. Batch files do the rest: both shells start one by a
word without a special character. The folder and the runner carry the name of this machine, so that the next deploy
ends and removes what a broken connection left.
"""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paramiko

from core.errors import NotSupportedError, TransferError
from core.files import sha256_bytes
from core.plain import says
from deploy.transport.base import Completed, Progress, finished, refusal, uninterrupted
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, RUN, receiving
from deploy.transport.ssh.transport import SshChannel, SshTransport, broken

VERSION = "for_windows"
"""What the version of Windows' own SSH server says of itself: ``OpenSSH_for_Windows_9.5``."""
FOLDER = ".slipway"
_CHUNK = 128 << 10
"""Bytes in one write of SFTP: paramiko's own 32 KiB make four times the requests."""
_SILENCE = 60.0
"""Seconds without any answer after which a transfer is given up."""
_CLEANUP = 30.0
"""Seconds for ending a program and removing its folder."""

# A program that was ended holds its file for a moment more.
_AROUND = r"""@echo off
cd /d "%~dp0"
taskkill /f /im {runner} >nul 2>nul
if exist {name} rmdir /s /q {name} 2>nul
if exist {name} (ping -n 3 127.0.0.1 >nul & rmdir /s /q {name})
if exist {name} exit /b 1
if "%1"=="end" exit /b 0
mkdir {name}
if not exist {name} exit /b 1
echo slipway machine %PROCESSOR_ARCHITEW6432% %PROCESSOR_ARCHITECTURE%
echo slipway cores %NUMBER_OF_PROCESSORS%
echo slipway cpu %PROCESSOR_IDENTIFIER%
echo slipway host %COMPUTERNAME%
ver
for %%f in ({libraries}) do if exist "%SystemRoot%\System32\%%f" echo slipway library %%f
exit /b 0
"""


class WindowsTransport(SshTransport):
    """A Windows device over SSH."""

    posix = False

    def __init__(self, inner: SshTransport) -> None:
        super().__init__(inner._sessions, inner.address)
        self._sftp: paramiko.SFTPClient | None = None
        own = sha256_bytes(socket.gethostname().encode())[:8]
        self._batch = f"{FOLDER}/around-{own}.cmd"
        self._folder = f"run-{own}"
        self.runner = f"pte_runner-{own}.exe"
        """The runner's name there."""

    @property
    def folder(self) -> str:
        """The deploy's folder, below the login's own."""
        return f"{FOLDER}/{self._folder}"

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        """Refuse a command that is for a POSIX shell.

        Raises:
            NotSupportedError: always.
        """
        del argv, deadline
        raise NotSupportedError(
            f"{self.name} is Windows, which has no POSIX shell.",
            "programs are deployed to it and run; nothing is kept there that could be verified, rolled back or removed",
            f"./inv deploy --device {self.name}, or ./inv matrix",
        )

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """Write a whole file, by SFTP; whoever calls it reads it back."""
        del offset
        with self._files(local.name, remote, deadline) as sftp, local.open("rb") as source:
            sink = sftp.open(remote, "wxb")
            sink.MAX_REQUEST_SIZE = _CHUNK
            sink.set_pipelined(True)
            while piece := source.read(_CHUNK):
                deadline.check(f"uploading {local.name}")
                sink.write(piece)
                progress(len(piece))
            sink.close()

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        """Read a file, by SFTP."""
        with (
            self._files(local.name, remote, deadline) as sftp,
            receiving(local, limit, self.name) as take,
            sftp.open(remote, "rb") as source,
        ):
            source.set_pipelined(True)
            while piece := source.read(PIECE):
                take(piece)
                deadline.check(f"fetching {remote}")

    @contextlib.contextmanager
    def _files(self, name: str, remote: str, deadline: Deadline) -> Iterator[paramiko.SFTPClient]:
        """The client for files, which is opened once; and our errors for paramiko's."""
        doing = f"moving {name} to or from {self.name}"
        deadline.check(doing)
        sftp, self._sftp = self._sftp, None  # after an error it may be in the middle of a packet
        try:
            if sftp is None:
                channel = self._sessions.open(deadline.left(_SILENCE))
                channel.settimeout(max(1.0, deadline.left(_SILENCE)))
                channel.invoke_subsystem("sftp")
                sftp = paramiko.SFTPClient(channel)
            if (channel_of := sftp.get_channel()) is not None:
                channel_of.settimeout(max(1.0, deadline.left(_SILENCE)))
            yield sftp
            self._sftp = sftp
        except (OSError, EOFError, paramiko.SSHException, paramiko.SFTPError) as error:
            if deadline.over:
                raise deadline.error(doing) from error
            if not self._sessions.first.is_active() or isinstance(error, EOFError):
                raise broken(self.name, error) from error
            if sftp is None:
                raise NotSupportedError(
                    f"{self.name} has no SFTP server.", "its sshd_config has no line for the subsystem sftp",
                    "Subsystem sftp sftp-server.exe in C:\\ProgramData\\ssh\\sshd_config, as Windows ships it",
                ) from error  # fmt: skip
            raise refusal(self.name, name, remote, str(error)) from error

    def _replace(self, text: str, remote: str, deadline: Deadline) -> None:
        """Write a batch file; its folder is made if need be."""
        with self._files(remote, remote, deadline) as sftp:
            for change, path in ((sftp.mkdir, remote.rpartition("/")[0]), (sftp.remove, remote)):
                with contextlib.suppress(OSError):  # it is there already; it is not there yet
                    change(path)
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "batch.cmd"
            local.write_bytes(text.replace("\n", "\r\n").encode("ascii"))
            self.put(local, remote, lambda _: None, deadline)

    @contextlib.contextmanager
    def opened(self, libraries: Sequence[str], deadline: Deadline) -> Iterator[str]:
        """Make the folder, and in the end remove it with what runs in it; gives what the device says of itself.

        It also says which of ``libraries`` its system has.

        Raises:
            TransferError: the folder of an earlier run cannot be removed. UnreachableError: the connection broke.
        """
        names = " ".join(name for name in libraries if re.fullmatch(r"[\w.-]+", name))
        self._replace(_AROUND.format(runner=self.runner, name=self._folder, libraries=names), self._batch, deadline)
        line = ".\\" + self._batch.replace("/", "\\")
        done = self._called(line, deadline, f"asking {self.name} what it is")
        if done.code != 0:
            raise TransferError(
                f"{self.name} cannot make the folder {self.folder}.",
                says(self.name, done.message) or "something uses the one of an earlier run",
                "the same command again",
            )
        try:
            yield done.text
        finally:
            with uninterrupted(), contextlib.suppress(TransferError):
                self._called(f"{line} end", Deadline.after(_CLEANUP), "removing the run's folder")

    def call(
        self, argv: Sequence[str], deadline: Deadline, doing: str, hear: Callable[[bytes], None] = lambda _: None
    ) -> Completed:
        """Run a program of the folder in it, to its end; `opened` ends it if this is interrupted.

        Raises:
            NotSupportedError: a word that a batch file cannot hold. DeadlineError, UnreachableError, AnswerError
        """
        for word in argv:
            if not re.fullmatch(r"[ !#-~]*", word):
                raise NotSupportedError(
                    f"{word!r} cannot be given to a program on Windows.", "it has a quote, or letters beyond ASCII",
                    "a name in plain letters",
                )  # fmt: skip
        words = " ".join(f'"{word.replace("%", "%%")}"' for word in argv)
        self._replace(f'@echo off\ncd /d "%~dp0"\n{words}\nexit /b %errorlevel%\n', f"{self.folder}/go.cmd", deadline)
        return self._called(f".\\{FOLDER}\\{self._folder}\\go.cmd", deadline, doing, hear)

    def _called(
        self, line: str, deadline: Deadline, doing: str, hear: Callable[[bytes], None] = lambda _: None
    ) -> Completed:
        with contextlib.closing(SshChannel(self._sessions, self.name, line, deadline)) as channel:
            channel.heard.limit, channel.heard.doing = RUN, doing
            return finished(channel, (line,), deadline, hear)
