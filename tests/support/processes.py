"""Commands that tests run, the processes of a folder, ports and servers, and what something takes undisturbed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def ran(argv: Sequence[str | os.PathLike[str]], **how: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, well or not, and what it said."""
    return subprocess.run(argv, capture_output=True, text=True, check=False, **how)


def executable(file: Path, text: str) -> Path:
    """A program of this text, such as a script; its folder is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return file


def marked(folder: str, setting: str = "") -> dict[int, list[str]]:
    """Living processes, other than this one, that work in ``folder`` or name it, with their argv.

    Args:
        setting: only those with this in their environment, as ``TMPDIR=/tmp/x``: others may have work there, too.
    """
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue  # ended; its parent has not looked yet
            if setting and os.fsencode(setting) not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            # Where a process of another namespace works cannot always be read.
            if any(folder in word for word in argv) or f"{(entry / 'cwd').readlink()}/".startswith(f"{folder}/"):
                found[int(entry.name)] = argv
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(ancestor: int) -> set[int]:
    """Living processes that ``ancestor`` has started, and those that they have."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}


def runners(folder: str) -> list[int]:
    """Those of `marked` that are the runner itself."""
    return [pid for pid, argv in marked(folder).items() if argv[0].endswith("/bin/pte_runner")]


def ended(alive: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether ``alive`` turns false: on a busy machine a process takes a moment to die, also of KILL."""
    end = time.monotonic() + seconds
    while found := alive():
        if time.monotonic() > end:
            raise AssertionError(f"still there: {found}")
        time.sleep(0.05)
    return True


def wait_for(what: Callable[[], object], seconds: float = 60, child: subprocess.Popen[str] | None = None) -> None:
    """Wait until ``what`` is true; it is an error when it does not happen in time, or when ``child`` ends before."""
    end = time.monotonic() + seconds
    while not what():
        assert child is None or child.poll() is None, child.communicate()
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def gone(folder: str, seconds: float = 20.0, setting: str = "") -> bool:
    """Whether no process of ``folder`` (see `marked`) is left, or the last one goes within ``seconds``."""
    return ended(lambda: marked(folder, setting), seconds)


def reserved() -> int:
    """A port for this process's tests alone.

    The system gives it to nobody else: it is below those that it chooses by itself. Other tests see its lock.
    """
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(range_file.read_text().split()[0]) if range_file.exists() else 32768
    locks = Path(tempfile.gettempdir()) / f"slipway-test-ports-{os.getuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    ports = range(20_000, max(lowest, 21_000))
    for port in random.sample(ports, len(ports)):
        lock = os.open(locks / str(port), os.O_RDWR | os.O_CREAT, 0o600)  # it stays open until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        return port
    raise AssertionError("no port is free")


def answers(port: int) -> bool:
    """Whether something accepts connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def listening(speak: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port of this machine at which ``speak`` serves each connection, until its other side has enough."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, ValueError):
            speak(peer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def for_ever(data: bytes, first: bytes = b"") -> Callable[[socket.socket], None]:
    """Says ``first``, and then ``data`` again and again."""

    def speak(peer: socket.socket) -> None:
        peer.sendall(first)
        while True:
            peer.sendall(data)

    return speak


def peak() -> int:
    """Bytes that this process had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def quickest(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the quickest of several times: other tests keep the processors busy in some of them."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return min(took)


def well(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same command; the test fails with what it said if it did not end well."""
    assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
    return done
