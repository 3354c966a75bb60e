"""The transport to Windows over SSH.

Neither cmd nor PowerShell is given anything to read but two words without a special character: the agent's path, and
what it shall do. The agent is compiled here when it is first needed, and kept by the digest of its sources. Files go
both ways by SFTP, which OpenSSH for Windows always has.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import paramiko

from core.errors import BuildError, NotSupportedError
from core.files import locked, sha256_bytes, write_atomic
from core.paths import cache_dir
from core.processes.commands import run
from deploy.scripts import names, script
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE
from deploy.transport.ssh.sessions import SshChannel
from deploy.transport.ssh.transport import Files, SshTransport
from toolchains.compilers import zig

_FOLDER = ".slipway-agent"
"""The folder of the agent, below the login's own."""
_LONGEST = 20_000
"""Bytes of a command for sh. The text of a script, which is most of it, becomes a name here: what is left stays below
the 8,191 characters that cmd takes, in base64, too."""


class WindowsFiles(Files):
    """The file side: by SFTP alone."""

    def agent(self, deadline: Deadline) -> str:
        """Have the agent there; gives its path below the login's folder.

        Raises:
            TransferError: it cannot be put there. UnreachableError: the connection broke.
        """
        local = program()
        remote = f"{_FOLDER}/{local.name}"
        with self._guarded(local.name, remote, deadline):
            sftp = self._required(deadline)
            with contextlib.suppress(FileNotFoundError):
                if sftp.stat(remote).st_size == local.stat().st_size:
                    return remote
            with contextlib.suppress(OSError):  # it is there already, or the upload says why it is not
                sftp.mkdir(_FOLDER)
        part = f"{remote}.{secrets.token_hex(6)}.part"
        self.put(local, part, lambda _: None, deadline)
        with self._guarded(local.name, remote, deadline):
            sftp = self._required(deadline)
            try:
                sftp.posix_rename(part, remote)
            except OSError:
                sftp.stat(remote)  # another session was faster, and runs it: Windows does not replace it
                sftp.remove(part)
        return remote

    def _required(self, deadline: Deadline) -> paramiko.SFTPClient:
        sftp = self._open(deadline)
        if sftp is None:
            raise NotSupportedError(
                f"{self._name} has no SFTP server.", "its sshd_config has no line for the subsystem sftp",
                "Subsystem sftp sftp-server.exe in C:\\ProgramData\\ssh\\sshd_config, as Windows ships it",
            )  # fmt: skip
        return sftp

    def _get_cat(self, remote: str, take: Callable[[bytes], None], deadline: Deadline) -> None:
        with self._required(deadline).open(remote, "rb") as source:
            source.set_pipelined(True)
            while piece := source.read(PIECE):
                take(piece)
                deadline.check(f"fetching {remote}")

    def _is_full(self, remote: str) -> bool:
        del remote
        return False  # nothing here tells before the agent runs; it says so itself


class WindowsTransport(SshTransport):
    """A Windows device over SSH."""

    def __init__(self, inner: SshTransport, deadline: Deadline) -> None:
        super().__init__(inner._sessions, inner.address)
        self._files: WindowsFiles = WindowsFiles(inner._sessions, inner.name)
        self._agent = self._files.agent(deadline).replace("/", "\\")

    @property
    def longest(self) -> int:
        return _LONGEST

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> SshChannel:
        return SshChannel(self._sessions, self.name, f".\\{self._agent} {token(translated(argv))}", deadline)


def translated(argv: Sequence[str]) -> list[str]:
    """The agent's words for a command that ``sh`` would run.

    Raises:
        NotSupportedError: it is neither one of our scripts nor under our supervisor.
    """
    name, *words = _script(argv) or [""]
    if name != "supervise":
        if name:
            return [name, *words]
        raise NotSupportedError("Windows has no POSIX shell.", f"{argv[0]} was to be run there", "give it a .exe")
    four, inner = words[:4], words[4:]
    first = 0
    if inner[0] == "env":
        first = next(place for place, word in enumerate(inner) if place and "=" not in word)
    found = _script(inner[first:])
    rest = [f"@{found[0]}", *found[1:]] if found else inner[first:]
    return [name, *four, *inner[:first], *rest]


def token(words: Sequence[str]) -> str:
    """``words`` as the agent reads them."""
    return base64.urlsafe_b64encode(b"".join(word.encode() + b"\0" for word in words)).decode().rstrip("=")


def _script(argv: Sequence[str]) -> list[str] | None:
    """The name and the words of one of our scripts."""
    if list(argv[:2]) != ["sh", "-c"] or len(argv) < 4:
        return None
    name = _texts().get(argv[2])
    return [name, *argv[4:]] if name else None


@functools.cache
def _texts() -> dict[str, str]:
    return {script(name): name for name in names()}


FOLDER = Path(__file__).with_name("agent")
_TARGET = "x86_64-windows-gnu"
"""Windows on Arm runs programs for x86-64 as well, from version 11 on."""
_FLAGS = ("-std=c++17", "-O2", "-s", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror")
_LIBRARIES = ("-lbcrypt", "-ladvapi32")


def program() -> Path:
    """The agent's file.

    Raises:
        HostError: no compiler to be had here. BuildError: it does not compile.
    """
    sources = sorted(FOLDER.glob("*.cpp"))
    told = [zig.pinned_version(), _TARGET, *_FLAGS, *_LIBRARIES]
    parts = [*(file.read_bytes() for file in (*sources, FOLDER / "agent.h")), *map(str.encode, told)]
    kept = cache_dir("toolchains") / f"agent-{sha256_bytes(bytes(1).join(parts))[:16]}.exe"
    if not kept.is_file():
        with locked("windows-agent"):
            if not kept.is_file():
                with tempfile.TemporaryDirectory(prefix="slipway-agent-") as folder:
                    made = Path(folder) / kept.name
                    run(
                        [zig.program(), "c++", "-target", _TARGET, *_FLAGS, *sources, *_LIBRARIES, "-o", made],
                        env={**os.environ, **zig.caches()}, error=BuildError, what="Building the agent for Windows",
                    )  # fmt: skip
                    write_atomic(kept, made.read_bytes())
    return kept
