"""The stored state of a virtual device: one folder each, ``devices/<name>`` in the cache.

``SLIPWAY_DEVICES`` moves these folders alone; downloads and images stay shared.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.files import sha256_bytes, write_atomic, write_json
from core.paths import cache_dir
from deploy.transport.processes import Process

VARIABLE = "SLIPWAY_DEVICES"


def _root() -> Path:
    base = os.environ.get(VARIABLE)
    return Path(base).expanduser().absolute() if base else cache_dir("devices")


@dataclass(frozen=True)
class Folder:
    """The paths of a device's files."""

    path: Path

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

    @property
    def lock(self) -> str:
        """Name of the lock that a process holds while it starts the device."""
        return f"device-{self.path.name}-{sha256_bytes(str(self.path).encode())[:12]}"

    @property
    def key(self) -> Path:
        """The private key that opens the device."""
        return self.path / "id_ed25519"

    @property
    def host_key(self) -> Path:
        """The device's own private key."""
        return self.path / "host_ed25519_key"

    @property
    def known_hosts(self) -> Path:
        """The device's address and public key."""
        return self.path / "known_hosts"

    @property
    def initrd(self) -> Path:
        """The image's archive with the keys behind it."""
        return self.path / "initrd.cpio"

    @property
    def console(self) -> Path:
        """What the machine wrote on its serial port."""
        return self.path / "console.log"

    @property
    def log(self) -> Path:
        """What QEMU and its supervisor wrote."""
        return self.path / "supervisor.log"

    def printed(self) -> int:
        """Bytes of `console` and `log` together."""
        size = 0
        for file in (self.console, self.log):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        return size

    @property
    def launch(self) -> Path:
        """The supervisor's orders."""
        return self.path / "launch.json"

    @property
    def state(self) -> Path:
        """`State`, while the machine runs."""
        return self.path / "state.json"

    @property
    def last_used(self) -> Path:
        """Its time of change is the time of last use."""
        return self.path / "last-used"

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
        value: dict[str, Any] = dict(vars(self))
        write_json(file, value | {"supervisor": self.supervisor.to_json(), "qemu": self.qemu.to_json()})


def read_state(folder: Folder) -> State | None:
    """The stored state, or ``None`` if it is missing or unreadable."""
    try:
        value = json.loads(folder.state.read_text(encoding="utf-8"))
        supervisor, qemu = Process.from_json(value["supervisor"]), Process.from_json(value["qemu"])
        if supervisor is None or qemu is None:
            return None
        return State(
            supervisor,
            qemu,
            int(value["port"]),
            float(value["since"]),
            float(value["idle_limit"]),
            bool(value["ready"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
