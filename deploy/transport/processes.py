"""Identify a process so that a later one with the same number is never mistaken for it.

A pid alone does not identify a process: the kernel reuses it. Pid, start time and boot together do.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _start_time(pid: int) -> int:
    """Clock ticks from boot to the process's start; 0 when there is none, or only its remains (a zombie)."""
    try:
        # The program's name, in parentheses, may itself hold spaces and parentheses.
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in "ZX" else int(words[19])


def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Process:
    """One process of this machine, identified uniquely."""

    pid: int
    start_time: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now."""
        return cls(pid, _start_time(pid), _boot())

    @classmethod
    def from_json(cls, value: Any) -> Process | None:
        """What `to_json` gave, or ``None`` for anything else."""
        try:
            return cls(int(value["pid"]), int(value["start_time"]), str(value["boot"]))
        except (KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> dict[str, object]:
        """For a state file."""
        return {"pid": self.pid, "start_time": self.start_time, "boot": self.boot}

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return (
            self.pid > 0 and self.start_time > 0 and _start_time(self.pid) == self.start_time and _boot() == self.boot
        )

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; false when it is gone.

        The handle is taken first and the identity looked at afterwards, so that the number cannot change hands
        in between.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except (ProcessLookupError, PermissionError):
            return False
        finally:
            os.close(handle)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until it is gone; false when it still runs after ``seconds``."""
        end = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def end(self, grace: float) -> bool:
        """TERM, then KILL after ``grace`` seconds; true when it was there and is gone."""
        if not self.send(signal.SIGTERM):
            return False
        if not self.wait(grace):
            self.send(signal.SIGKILL)
            self.wait(5)
        return True
