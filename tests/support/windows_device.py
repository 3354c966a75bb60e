"""A Windows device over SSH: asyncssh in place of its OpenSSH server, before Wine's own cmd and Wine's disk.

What is real: the SSH protocol, cmd as the login's shell, the agent as a Windows program, Windows' rules for files that
are open, jobs, and the server process that all of its programs share. What is not: sshd.exe, NTFS, and PowerShell.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.server import Device, Sftp, serve
from toolchains.emulation import wine
from toolchains.targets import get_target

VERSION = "OpenSSH_for_Windows_9.5"
_HOME = "drive_c/users/wine"
_ENTER = ("nsenter", "--user", "--preserve-credentials", "--mount", "--pid", "--target")


class _Files(Sftp):
    """Paths as OpenSSH for Windows has them: /C:/Users/wine/x, or below the login's folder."""

    def map_path(self, path: bytes) -> bytes:
        """The file here."""
        disk = os.fsencode(self._device.home.parents[1])
        text = path.decode()
        if text[:3].upper() == "/C:":
            return disk + text[3:].encode()
        return os.fsencode(self._device.home) + b"/" + path


@contextlib.contextmanager
def windows(folder: Path) -> Iterator[Device]:
    """Run it; its login's folder is the device's ``home``."""
    target = get_target("windows-x86_64")
    prefix, work = folder / "prefix", folder / "work"
    shutil.copytree(wine.prefix_of(target), prefix, symlinks=True)
    work.mkdir()
    start, enter = wine.machine(target, prefix, work)
    environment = wine.environment(target)
    server = subprocess.Popen(start, env=environment, stdin=subprocess.DEVNULL)
    try:
        inside = _child(server.pid)

        inner = [*_ENTER, inside, *enter, "cmd.exe"]
        # Windows' services begin with its first program, inherit its streams, and end with the last one.
        nowhere = subprocess.DEVNULL
        first = subprocess.Popen(inner, env=environment, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)
        subprocess.run(
            [*inner, "/c", "exit"], env=environment, check=True, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )

        def shell(command: str) -> list[str]:
            # `cd` first, since a program that is started from outside of its system begins in no folder of it.
            return [*inner, "/c", f"cd /d C:\\users\\wine & {command}"]

        with serve(folder, version=VERSION, files=_Files) as device:
            device.home, device.shell, device.environment = prefix / _HOME, shell, environment
            yield device
        first.communicate()  # its input ends
    finally:
        server.kill()
        server.wait()


def _child(parent: int) -> str:
    """The process that ``unshare`` forked, once it is there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if found and "wineserver" in str(Path(f"/proc/{found[0]}/exe").readlink()):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("Wine's server did not start")
