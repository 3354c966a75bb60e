"""Exports by the warm exporter: find or start it, ask for several exports at once, show what they do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from core import errors
from core.console import note, paused
from core.environment import bootstrap
from core.errors import ExportError, SlipwayError
from core.files import locked, sha256_bytes
from core.paths import ROOT, cache_dir
from core.processes.commands import lasting
from models import export as here
from models.export import sweep
from models.lowering.progress import Display, log_path
from models.request import Request, versions

_ROOMS = ("core", "models", "verify/bench")
_HARMLESS = frozenset(
    ["_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "COLORTERM", "WINDOWID", "DISPLAY", "PS1", "LS_COLORS"]
)
"""Variables that no library reads when it is loaded. The copy gets them, too."""
_OWN = ("SLIPWAY_", "INVOKE_", "SSH_", "TMUX", "STY", "VTE_", "XDG_SESSION", "DBUS_", "WAYLAND_", "PYTEST_")
"""Beginnings of such names: ours are read when they are needed."""
IDLE = 600.0
"""Seconds after which the process ends that nobody has asked."""
SOCKET = "socket"
MARK = "\x1f"
"""Before what an exporter says; other lines were printed by the export."""
_LOADING = 180.0
_LEAST = 3 << 20
"""KiB of free memory, below which nothing stays in memory."""


def environment() -> dict[str, str]:
    """The variables that libraries may read while they are loaded."""
    return {
        name: value for name, value in sorted(os.environ.items()) if name not in _HARMLESS and not name.startswith(_OWN)
    }


def code() -> str:
    """Digest of the code that exports, as it is on the disk now."""
    found = {}
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found[path.relative_to(ROOT).as_posix()] = sha256_bytes(path.read_bytes())
    return sha256_bytes(json.dumps(found, sort_keys=True).encode())


def key() -> str:
    """Digest of everything that decides what a process has in memory after it has loaded the exporter."""
    stamp = ""
    with contextlib.suppress(OSError):
        stamp = bootstrap.stamp(Path(sys.prefix), "export").read_text("utf-8")
    parts = {
        "root": os.fspath(ROOT),
        "python": [sys.executable, sys.version],
        "packages": [stamp, versions(), versions("onnx")],
        "code": code(),
        "environment": environment(),
        # Libraries make as many threads as there are processors for them when they are loaded.
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.nice(0),
    }
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())


def usable() -> bool:
    """Whether this machine can keep an exporter, and the user has not forbidden it (``SLIPWAY_WARM=no``)."""
    if not sys.platform.startswith("linux") or os.environ.get("SLIPWAY_WARM", "").lower() in ("no", "0", "off"):
        return False
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) > _LEAST
    return True


def home() -> Path:
    """The folder of this environment's exporters, which only its user may enter.

    Raises:
        OSError: it is somebody else's, or open to others.
    """
    folder = cache_dir("warm") / sha256_bytes(f"{ROOT}\0{sys.prefix}".encode())[:16]
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise OSError(f"{folder} is not private")
    return folder


def connect(folder: Path) -> socket.socket | None:
    """A connection to the exporter that serves in ``folder``; ``None`` if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with opened(folder) as path:
            connection.connect(f"{path}/{SOCKET}")
    except OSError:
        connection.close()
        return None
    return connection


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[str]:
    """Another path of the folder, which is short: a socket's may have 107 characters."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def _end_others(base: Path, keep: Path) -> None:
    """Let exporters of older code end: without its socket one ends. What exports now goes on."""
    for other in base.iterdir():
        if other != keep:
            shutil.rmtree(other, ignore_errors=True)


def start(folder: Path, wanted: str, idle: float) -> subprocess.Popen[bytes]:
    """Start an exporter in the new folder ``folder``; it is ready when its socket is there."""
    log = log_path("warm")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "models.warm.server", os.fspath(folder), wanted, str(idle)],
            cwd=ROOT,
            env=lasting(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _await(folder: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until the exporter is ready, or has ended, or takes too long."""
    begun = time.monotonic()
    while not (folder / SOCKET).exists() and child.poll() is None and time.monotonic() - begun < _LOADING:
        time.sleep(0.05)


@contextlib.contextmanager
def exporter(display: Display, name: str, keep: bool) -> Iterator[Path | None]:
    """The folder of an exporter that is ready; ``None`` if it does not start.

    Args:
        name: the export that waits for it.
        keep: let it wait for further commands afterwards.
    """
    wanted, base = key(), home()
    folder = base / (wanted[:32] if keep else f"once-{os.getpid()}")
    child: subprocess.Popen[bytes] | None = None
    try:
        with locked(f"warm-{base.name}-{folder.name if not keep else ''}"):
            if (ready := connect(folder)) is not None:
                ready.close()
            else:
                if keep:
                    _end_others(base, folder)
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(mode=0o700)
                child = start(folder, wanted, IDLE)
                display.show(name, "loading the exporter", None, time.monotonic())
                _await(folder, child)
        there = (folder / SOCKET).exists()
        keep = keep and there
        yield folder if there else None
    finally:
        if child is not None and not keep:
            child.kill()
            child.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _ask(connection: socket.socket, request: Request, force: bool, display: Display) -> SlipwayError | bool:
    """Ask for one export, and show what it does and prints.

    Returns:
        Whether it is done, or its error; ``False``: it must be exported in another way.
    """
    begun, umask = time.monotonic(), os.umask(0)
    os.umask(umask)
    display.show(request.name, "loading the exporter", None, begun)
    message = {
        "model": request.model,
        "scheme": request.scheme.name,
        "partitioners": list(request.partitioners),
        "options": request.options.to_json(),
        "force": force,
        "format": request.format,
        "out": os.fspath(request.folder.parent),
        "cwd": os.fspath(Path.cwd()),
        "umask": umask,
        "environment": dict(os.environ),
    }
    outcome: SlipwayError | bool = False
    with contextlib.suppress(OSError), connection.makefile("rw", encoding="utf-8", errors="replace") as stream:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
        for line in stream:
            if not line.startswith(MARK):
                display.say(line)
                continue
            kind, value = json.loads(line.removeprefix(MARK))
            if kind == "stage":
                name, text, expected, stage = value
                display.show(name, text, expected, begun, stage=stage)
            elif kind == "error":
                outcome = revived(value)
            elif kind == "done":
                outcome = True
            elif value < 0 and not outcome:
                sweep(request)
                outcome = crashed(request.name, -value)
    return outcome


def _all(
    folder: Path, requests: Sequence[Request], force: bool, at_once: int, display: Display
) -> list[SlipwayError | bool]:
    """What comes of each request; some are served at once. Ctrl-C ends them, and waits for that."""
    asked: set[socket.socket] = set()
    over = threading.Event()

    def one(request: Request) -> SlipwayError | bool:
        connection = None if over.is_set() else connect(folder)
        if connection is None:
            display.done(request.name)
            return False
        with connection:
            asked.add(connection)
            try:
                return _ask(connection, request, force, display)
            finally:
                asked.discard(connection)
                display.done(request.name)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(one, requests))
        except BaseException:
            over.set()
            for connection in list(asked):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            raise


def revived(told: dict[str, Any]) -> SlipwayError:
    """The error that a copy sent."""
    kind = getattr(errors, told["class"], ExportError)
    if not (isinstance(kind, type) and issubclass(kind, SlipwayError)):
        kind = ExportError
    what, cause, hint, names = told["parts"]
    return kind(what, cause, hint, names)


def crashed(name: str, number: int) -> ExportError:
    """The error for an export whose process a signal has ended."""
    import signal

    cause = "the model's code, or a library that it calls, has crashed"
    if number == signal.SIGKILL:
        cause = "something has killed it: often the system, for want of memory"
    return ExportError(
        f"{name}: the export's process ended with {signal.Signals(number).name}.", cause,
        f"read the end of its log, {log_path(name)}",
    )  # fmt: skip


def export(requests: Sequence[Request], force: bool, at_once: int, keep: bool) -> list[SlipwayError | bool]:
    """Export by the warm exporter.

    Args:
        at_once: how many together.
        keep: leave the exporter running for further commands.

    Returns:
        For each request whether it is done, or its error; ``False``: it must be exported in another way.
    """
    display = Display(sys.stderr, len(requests))
    try:
        with exporter(display, requests[0].name, keep) as folder:
            if folder is not None:
                return _all(folder, requests, force, at_once, display)
            display.done(requests[0].name)
    except OSError:
        pass  # the folder is not private, or cannot be made
    finally:
        display.close()
    return [False] * len(requests)


def attempt(outdated: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
    """Export several at once: by the warm exporter, or in this process if there is none.

    Args:
        at_once: how many together.

    Returns:
        The failures by the requests' names. A failure does not stop the others.
    """
    keep, several = usable(), len(outdated) > 1
    found: list[SlipwayError | bool] = [False] * len(outdated)
    if keep or (at_once > 1 and several):
        found = export(outdated, force, at_once, keep)
    failures = {one.name: error for one, error in zip(outdated, found, strict=True) if isinstance(error, SlipwayError)}
    for name, error in failures.items() if several else ():
        note(here.failed(name, error))
    left = [one for one, done in zip(outdated, found, strict=True) if done is False]
    with paused():  # it shows itself what it does
        return {**failures, **here.attempt(left, force)}
