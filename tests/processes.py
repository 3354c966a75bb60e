"""Which processes of this machine work in, or name, a folder: what a run must not leave behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def marked(folder: str) -> dict[int, str]:
    """Living processes, other than this one, whose working folder or command line has ``folder`` in it."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue  # ended; its parent has not looked yet
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((entry / "cwd").readlink())
            if folder in line or where == folder or where.startswith(folder + "/"):
                found[int(entry.name)] = line
    return found


def gone(folder: str, seconds: float = 5.0) -> bool:
    """Whether no process of ``folder`` is left, or the last one goes within ``seconds``."""
    end = time.monotonic() + seconds
    while left := marked(folder):
        if time.monotonic() > end:
            raise AssertionError(f"left behind: {left}")
        time.sleep(0.05)
    return True
