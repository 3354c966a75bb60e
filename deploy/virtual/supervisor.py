"""The process that owns a virtual machine: starts QEMU, ends it after disuse, and never outlives it.

The same holds for the private adb server (`deploy.virtual.machines`).

Started detached by `deploy.virtual.machines`; imports little, for it stays in memory as long as the machine.

Usage: python -m deploy.virtual.supervisor FOLDER
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from core.files import sha256_bytes, write_atomic, write_json
from core.paths import cache_dir

VARIABLE = "SLIPWAY_DEVICES"

_FLOCK = struct.Struct("hhqqi")
"""``struct flock`` of 64-bit Linux."""


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
        self.owned = path / "owned"
        """Locked by the supervisor for as long as it lives."""
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

    def owner(self) -> int | None:
        """The process of the supervisor that runs, by the kernel's word; 0: one that cannot be seen from here."""
        try:
            with self.owned.open("rb") as file:
                told = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            return None
        kind, *_, pid = _FLOCK.unpack(told)
        return None if kind == fcntl.F_UNLCK else int(pid)

    def touch(self) -> None:
        """Mark the device as used."""
        self.last_used.touch()

    def idle_seconds(self) -> float:
        """Seconds since it was last used."""
        try:
            return max(0.0, time.time() - self.last_used.stat().st_mtime)
        except FileNotFoundError:
            return 0.0


@dataclass(frozen=True)
class State:
    """A machine that was started; ``str()`` of it is ``up``, ``booting`` or ``down``."""

    pid: int
    """Its supervisor's; the machine does not outlive it. 0: there is none."""
    port: int
    ready: bool = False
    """Its ssh server has answered once."""

    def __str__(self) -> str:
        return "down" if not self.pid else "up" if self.ready else "booting"

    def write(self, file: Path) -> None:
        """Store it."""
        write_json(file, asdict(self))


def read_state(folder: Folder) -> State | None:
    """The state of the machine that runs; ``None`` without one."""
    try:
        state = State(**json.loads(folder.state.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return state if folder.owner() in (state.pid, 0) else None


PORT = "{port}"
"""Placeholder for the port in the launch file's argv."""

_PR_SET_PDEATHSIG = 1
_ESTABLISHED = "01"
_GRACE = 5.0
_REMOVED = "the device's folder was removed: ending the machine"


@dataclass(frozen=True)
class Launch:
    """The orders, as `deploy.virtual.machines` wrote them."""

    argv: tuple[str, ...]
    idle_seconds: float
    connections_count: bool = True
    """Whether an open connection to the port counts as use, or only `Folder.touch`."""

    @classmethod
    def read(cls, folder: Folder) -> Launch:
        """The orders in ``folder``."""
        value = json.loads(folder.launch.read_text(encoding="utf-8"))
        return cls(tuple(value["argv"]), float(value["idle_seconds"]), bool(value["connections_count"]))

    def write(self, folder: Folder) -> None:
        """Leave the orders in ``folder``."""
        write_atomic(folder.launch, json.dumps(vars(self), indent=2), mode=0o600)


def _die_with_parent(parent: int) -> Callable[[], None]:
    """For the child between fork and exec: have the kernel kill it when the supervisor ends in any way."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def connections(port: int) -> int:
    """Connections that are open to ``port`` of this machine."""
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return 0
    rows = (line.split() for line in lines)
    return sum(row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def _start(launch: Launch) -> tuple[subprocess.Popen[bytes], int]:
    """QEMU, or adb's server, on a port of its own. Should another process take it meanwhile, it ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    child = subprocess.Popen(
        [word.replace(PORT, str(port)) for word in launch.argv],
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509 - one thread only
    )
    return child, port


def _end(child: subprocess.Popen[bytes]) -> None:
    """End ``child``, which may have ended, and return when it has: by request first, then at once."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    child.kill()
    child.wait()


def _supervise(child: subprocess.Popen[bytes], port: int, launch: Launch, folder: Folder) -> None:
    idle_seconds = launch.idle_seconds
    pause = min(1.0, idle_seconds / 4)
    while child.poll() is None:
        time.sleep(pause)
        if not folder.path.is_dir():
            _say(_REMOVED)
            return
        if launch.connections_count and connections(port):
            folder.touch()
        elif folder.idle_seconds() > idle_seconds and _withdraw(folder, idle_seconds):
            _say(f"not used for {idle_seconds:.0f} s: ending the machine")
            return
    _say(f"the machine ended (exit {child.returncode})")


def _withdraw(folder: Folder, idle_seconds: float) -> bool:
    """Remove the state so that no process finds the machine any more, unless one just did."""
    state = read_state(folder)
    folder.state.unlink(missing_ok=True)
    if folder.idle_seconds() > idle_seconds:
        return True
    if state is not None:
        state.write(folder.state)
    return False


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stderr.flush()


class _Ended(BaseException):
    """Another process requested the end."""


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _on_signal(_number: int, _frame: object) -> None:
    _take_signals(signal.SIG_IGN)  # a second one would interrupt what the first one ends
    raise _Ended


def _take_signals(how: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in _ENDING:
        signal.signal(number, how)


def main(path: Path) -> None:
    """Run the machine whose orders are in ``path`` until it is not used any more."""
    os.chdir("/")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # release inherited locks (flock, make), which would be held for hours
    folder = Folder(path)
    owned = folder.owned.open("wb")  # open, and locked, until this process ends
    fcntl.lockf(owned, fcntl.LOCK_EX)
    launch = Launch.read(folder)
    _take_signals(_on_signal)
    child: subprocess.Popen[bytes] | None = None
    try:
        folder.touch()
        child, port = _start(launch)
        folder.touch()  # its time begins now
        State(os.getpid(), port).write(folder.state)
        _supervise(child, port, launch, folder)
    except _Ended:
        _say("asked to end the machine")
    except OSError:  # the folder may go at any moment, also between two looks at it
        if folder.path.is_dir():
            raise
        _say(_REMOVED)
    finally:
        _take_signals(signal.SIG_IGN)
        if child is not None:
            _end(child)
        state = read_state(folder)
        if state is not None and state.pid == os.getpid():
            folder.state.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
