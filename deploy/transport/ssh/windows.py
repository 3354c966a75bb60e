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
from deploy.transport.base import Completed, finished, uninterrupted
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, RUN
from deploy.transport.ssh.sessions import SshChannel
from deploy.transport.ssh.transport import Files, SshTransport

VERSION = "for_windows"
"""What the version of Windows' own SSH server says of itself: ``OpenSSH_for_Windows_9.5``."""
FOLDER = ".slipway"
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


class _Files(Files):
    """The file side: by SFTP alone."""

    def _open(self, deadline: Deadline) -> paramiko.SFTPClient:
        found = super()._open(deadline)
        if found is None:
            raise NotSupportedError(
                f"{self._name} has no SFTP server.", "its sshd_config has no line for the subsystem sftp",
                "Subsystem sftp sftp-server.exe in C:\\ProgramData\\ssh\\sshd_config, as Windows ships it",
            )  # fmt: skip
        return found

    def replace(self, text: str, remote: str, deadline: Deadline) -> None:
        """Write a batch file; its folder is made if need be."""
        with self._guarded(remote, remote, deadline):
            sftp = self._open(deadline)
            for change, path in ((sftp.mkdir, remote.rpartition("/")[0]), (sftp.remove, remote)):
                with contextlib.suppress(OSError):  # it is there already; it is not there yet
                    change(path)
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "batch.cmd"
            local.write_bytes(text.replace("\n", "\r\n").encode("ascii"))
            self.put(local, remote, lambda _: None, deadline)

    def _get_cat(self, remote: str, take: Callable[[bytes], None], deadline: Deadline) -> None:
        with self._open(deadline).open(remote, "rb") as source:
            source.set_pipelined(True)
            while piece := source.read(PIECE):
                take(piece)
                deadline.check(f"fetching {remote}")

    def _is_full(self, remote: str) -> bool:
        del remote
        return False  # SFTP does not tell


class WindowsTransport(SshTransport):
    """A Windows device over SSH."""

    posix = False

    def __init__(self, inner: SshTransport) -> None:
        super().__init__(inner._sessions, inner.address)
        self._files: _Files = _Files(inner._sessions, inner.name)
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

    @contextlib.contextmanager
    def opened(self, libraries: Sequence[str], deadline: Deadline) -> Iterator[str]:
        """Make the folder, and in the end remove it with what runs in it; gives what the device says of itself.

        Args:
            libraries: system libraries that are looked for.

        Raises:
            TransferError: the folder of an earlier run cannot be removed. UnreachableError: the connection broke.
        """
        names = " ".join(name for name in libraries if re.fullmatch(r"[\w.-]+", name))
        text = _AROUND.format(runner=self.runner, name=self._folder, libraries=names)
        self._files.replace(text, self._batch, deadline)
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
        self._files.replace(
            f'@echo off\ncd /d "%~dp0"\n{words}\nexit /b %errorlevel%\n', f"{self.folder}/go.cmd", deadline
        )
        return self._called(f".\\{FOLDER}\\{self._folder}\\go.cmd", deadline, doing, hear)

    def _called(
        self, line: str, deadline: Deadline, doing: str, hear: Callable[[bytes], None] = lambda _: None
    ) -> Completed:
        channel = SshChannel(self._sessions, self.name, line, deadline)
        channel.heard.limit, channel.heard.doing = RUN, doing
        try:
            return finished(channel, (line,), deadline, hear)
        finally:
            channel.close()
