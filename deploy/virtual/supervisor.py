"""The process that owns a virtual machine: starts QEMU, ends it after disuse, and never outlives it.

The same holds for the private adb server (`deploy.virtual.adb`).

Started detached by `deploy.virtual.machines`; imports little, for it stays in memory as long as the machine.

Usage: python -m deploy.virtual.supervisor FOLDER
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.virtual.state import Folder, Process, State, read_state

PORT = "{port}"
"""Placeholder for the port in the launch file's argv."""

_PR_SET_PDEATHSIG = 1
_ESTABLISHED = "01"
_LISTENING = "0A"
_PORT_TRIES = 8
_TAKEN = (
    b"Could not set up host forwarding rule",
    b"could not set up host forwarding rule",
    b"Address already in use",
)
"""Messages of QEMU and adb's server about a port that is in use."""
_EARLY_SECONDS = 10.0
"""Seconds within which QEMU has its port, or ends: on a busy machine it may take some to begin."""
_GRACE = 5.0
_REMOVED = "the device's folder was removed: ending the machine"
MOST_PRINTED = 256 << 20
"""Bytes that a machine may print, on its console and by its emulator: they are on this machine's disk."""


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
        folder.private(folder.launch, json.dumps(vars(self), indent=2))


def _die_with_parent(parent: int) -> Callable[[], None]:
    """For the child between fork and exec: have the kernel kill it when the supervisor ends in any way."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connections(port: int, table: Path = Path("/proc/net/tcp")) -> int:
    """Connections that are open to ``port`` of this machine."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return 0
    rows = (line.split() for line in lines)
    return sum(row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on ``port`` of this machine."""
    lines: list[str] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # adb's server has either
        with contextlib.suppress(OSError):
            lines += Path(table).read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    sockets = {
        f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }
    with contextlib.suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir() if sockets else ():
            with contextlib.suppress(OSError):
                if str(handle.readlink()) in sockets:
                    return True
    return False


def _has_port(child: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until ``child`` has ``port``; false when it ended before that."""
    end = time.monotonic() + _EARLY_SECONDS
    while child.poll() is None:
        if listens(child.pid, port) or time.monotonic() > end:
            return True
        time.sleep(0.02)
    return False


def _after(log: Path, size: int) -> bytes:
    with log.open("rb") as file:
        file.seek(size)
        return file.read()


def _start(launch: Launch, folder: Folder) -> tuple[subprocess.Popen[bytes], int]:
    """QEMU on a port of its own; another process may take a free port before QEMU does, hence the loop."""
    for _ in range(_PORT_TRIES):
        port = _free_port()
        before = folder.log.stat().st_size
        child = subprocess.Popen(
            [word.replace(PORT, str(port)) for word in launch.argv],
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509 - one thread only
        )
        try:
            if _has_port(child, port):
                return child, port
            said = _after(folder.log, before)
            if not any(words in said for words in _TAKEN):
                break
        except BaseException:  # a signal, or the folder is gone: the caller does not know this child
            _end(child)
            raise
    raise SystemExit(f"{Path(launch.argv[0]).name} ended at once (exit {child.returncode})")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End ``child``, which may have ended, and return when it has: by request first, then at once."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    child.kill()
    child.wait()


def _supervise(
    child: subprocess.Popen[bytes], port: int, launch: Launch, folder: Folder, opened: os.stat_result
) -> None:
    idle_seconds = launch.idle_seconds
    pause = min(1.0, idle_seconds / 4)
    while child.poll() is None:
        time.sleep(pause)
        if not _is_there(folder, opened):
            _say(_REMOVED)
            return
        if (size := folder.printed()) > MOST_PRINTED:
            _say(f"its console and log have {size:,} bytes, more than {MOST_PRINTED:,}: ending the machine")
            return
        if launch.connections_count and connections(port):
            folder.touch()
        elif folder.idle_seconds() > idle_seconds and _withdraw(folder, idle_seconds):
            _say(f"not used for {idle_seconds:.0f} s: ending the machine")
            return
    _say(f"the machine ended (exit {child.returncode})")


def _is_there(folder: Folder, opened: os.stat_result) -> bool:
    """Whether the folder still has its name, and no other one has it."""
    try:
        return os.path.samestat(folder.path.stat(), opened)
    except OSError:
        return False


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
    opened = os.fstat(os.open(path, os.O_RDONLY))  # it stays open: no other folder gets its number
    launch = Launch.read(folder)
    _take_signals(_on_signal)
    child: subprocess.Popen[bytes] | None = None
    try:
        folder.touch()
        child, port = _start(launch, folder)
        folder.touch()  # its time begins now
        State(Process.of(os.getpid()), Process.of(child.pid), port, time.time(), launch.idle_seconds).write(
            folder.state
        )
        _supervise(child, port, launch, folder, opened)
    except _Ended:
        _say("asked to end the machine")
    except OSError:  # the folder may go at any moment, also between two looks at it
        if _is_there(folder, opened):
            raise
        _say(_REMOVED)
    finally:
        _take_signals(signal.SIG_IGN)
        if child is not None:
            _end(child)
        state = read_state(folder)
        if state is not None and state.supervisor.pid == os.getpid():
            folder.state.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
