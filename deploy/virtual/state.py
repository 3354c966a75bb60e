"""The stored state of a virtual device: one folder each, ``devices/<name>`` in the cache.

``SLIPWAY_DEVICES`` moves these folders alone; downloads and images stay shared. A process is identified so that a later
one with the same number is never mistaken for it: the kernel reuses a pid; pid, start time and boot together are one's
own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from core.files import sha256_bytes, write_atomic, write_json
from core.paths import cache_dir

VARIABLE = "SLIPWAY_DEVICES"


def _root() -> Path:
    base = os.environ.get(VARIABLE)
    return Path(base).expanduser().absolute() if base else cache_dir("devices")


class Folder:
    """The paths of a device's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = f"device-{path.name}-{sha256_bytes(str(path).encode())[:12]}"
        """Name of the lock that a process holds while it starts the device."""
        self.key = path / "id_ed25519"
        """The private key that opens the device."""
        self.host_key = path / "host_ed25519_key"
        """The device's own private key."""
        self.known_hosts = path / "known_hosts"
        """The device's address and public key."""
        self.initrd = path / "initrd.cpio"
        """The image's archive with the keys behind it."""
        self.console = path / "console.log"
        """What the machine wrote on its serial port."""
        self.log = path / "supervisor.log"
        """What QEMU and its supervisor wrote."""
        self.launch = path / "launch.json"
        """The supervisor's orders."""
        self.state = path / "state.json"
        """`State`, while the machine runs."""
        self.last_used = path / "last-used"
        """Its time of change is the time of last use."""

    @classmethod
    def of(cls, name: str) -> Folder:
        """The folder of device ``name``; only its owner may read it."""
        path = _root() / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path)

    @classmethod
    def all(cls) -> list[Folder]:
        """The folders of all devices that were ever started."""
        root = _root()
        return [cls(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []

    def printed(self) -> int:
        """Bytes of `console` and `log` together."""
        size = 0
        for file in (self.console, self.log):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        return size

    def touch(self) -> None:
        """Mark the device as used."""
        self.last_used.touch()

    def idle_seconds(self) -> float:
        """Seconds since it was last used."""
        try:
            return max(0.0, time.time() - self.last_used.stat().st_mtime)
        except FileNotFoundError:
            return 0.0

    def private(self, path: Path, text: str) -> None:
        """Write a file that only its owner may read."""
        write_atomic(path, text, mode=0o600)


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


@dataclass(frozen=True)
class State:
    """A machine that was started."""

    supervisor: Process
    qemu: Process
    port: int
    since: float
    """Seconds since the epoch."""
    idle_limit: float
    ready: bool = False
    """Its ssh server has answered once."""

    @property
    def running(self) -> bool:
        """Whether supervisor and machine are there. The one does not outlive the other."""
        return self.supervisor.alive and self.qemu.alive

    def write(self, file: Path) -> None:
        """Store it."""
        write_json(file, asdict(self))


def read_state(folder: Folder) -> State | None:
    """The stored state, or ``None`` if it is missing or unreadable."""
    try:
        value = json.loads(folder.state.read_text(encoding="utf-8"))
        return State(**{**value, **{name: Process(**value[name]) for name in ("supervisor", "qemu")}})
    except (OSError, ValueError, KeyError, TypeError):
        return None
