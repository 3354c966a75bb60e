"""Exports by the warm exporter: find or start it, ask for several exports at once, show what they do."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from models.lowering.progress import Display
from models.lowering.quiet import log_path
from models.request import Request, versions

_ROOMS = ("core", "models", "verify/nets")
_HARMLESS = frozenset(
    ["_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "COLORTERM", "WINDOWID", "DISPLAY", "PS1", "LS_COLORS"]
)
"""Variables that no library reads when it is loaded. The copy gets them, too."""
_OWN = ("SLIPWAY_", "INVOKE_", "SSH_", "TMUX", "STY", "VTE_", "XDG_SESSION", "DBUS_", "WAYLAND_", "PYTEST_")
"""Beginnings of such names: ours are read when they are needed."""
IDLE = 600.0
"""Seconds after which the process ends that nobody has asked."""
SOCKET = "socket"
BUSY = "busy"
"""A file beside it while exports run."""
_LOADING = 180.0
_ENDING = 20.0
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
    """A connection to the exporter that serves in ``folder``; ``None`` if there is none of this user's."""
    import struct

    connection = socket.socket(socket.AF_UNIX)
    handle = -1
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        connection.connect(f"/proc/self/fd/{handle}/{SOCKET}")
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            return connection
    except OSError:
        pass
    finally:
        if handle >= 0:
            os.close(handle)
    connection.close()
    return None


def _end_others(base: Path, keep: Path) -> None:
    """Let exporters of older code end: without its socket one ends. Those that export now stay until they are idle."""
    for other in base.iterdir():
        if other == keep:
            continue
        if (connection := connect(other)) is not None:
            connection.close()
            if (other / BUSY).exists():
                continue
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
    wanted = key()
    base = home()
    folder = base / (wanted[:32] if keep else f"once-{os.getpid()}")
    child: subprocess.Popen[bytes] | None = None
    with locked(f"warm-{base.name}" if keep else f"warm-{base.name}-{os.getpid()}"):
        ready = connect(folder)
        if ready is not None:
            ready.close()
        else:
            if keep:
                _end_others(base, folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            child = start(folder, wanted, IDLE)
            display.show(name, "loading the exporter", None, time.monotonic())
            try:
                _await(folder, child)
            except BaseException:
                if not keep:
                    child.kill()
                raise
            if not (folder / SOCKET).exists():
                child.kill()
                child.wait()
                shutil.rmtree(folder, ignore_errors=True)
                folder = None  # type: ignore[assignment]  # as the caller expects
    try:
        yield folder
    finally:
        if child is not None and not keep and folder is not None:
            child.terminate()
            child.wait()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Asked:
    """An export that was asked for."""

    request: Request
    connection: socket.socket
    output: int
    begun: float
    answer: dict[str, Any] = field(default_factory=dict)
    heard: bytes = b""
    printed: bytes = b""
    ended: int | None = None


def _ask(folder: Path, request: Request, force: bool) -> _Asked | None:
    """Ask for one export; ``None`` if nobody answers."""
    connection = connect(folder)
    if connection is None:
        return None
    umask = os.umask(0)
    os.umask(umask)
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
    mine, theirs = os.pipe()
    try:
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(connection, [data], [theirs])
        connection.sendall(data[sent:])
    except OSError:
        os.close(mine)
        connection.close()
        return None
    finally:
        os.close(theirs)
    return _Asked(request, connection, mine, time.monotonic())


class Exports:
    """Several exports, some of them at once.

    Args:
        at_once: how many.
    """

    def __init__(self, folder: Path, requests: Sequence[Request], force: bool, at_once: int, display: Display) -> None:
        self.folder = folder
        self.waiting = list(requests)
        self.force = force
        self.at_once = at_once
        self.display = display
        self.outcome: dict[str, Path | SlipwayError | None] = {}
        """By the request's name; ``None``: it must be exported in another way."""
        self.running: list[_Asked] = []
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Until all have ended. Ctrl-C ends them, and waits for that."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.at_once:
                    self._begin(self.waiting.pop(0))
                self._step(1.0)
        except BaseException:
            self._stop()
            raise
        finally:
            self.selector.close()

    def _begin(self, request: Request) -> None:
        one = _ask(self.folder, request, self.force)
        if one is None:
            self.outcome[request.name] = None
            self.display.done(request.name)
            return
        self.running.append(one)
        self.display.show(request.name, "loading the exporter", None, one.begun)
        self.selector.register(one.connection, selectors.EVENT_READ, (one, self._hear))
        self.selector.register(one.output, selectors.EVENT_READ, (one, self._print))

    def _step(self, seconds: float) -> None:
        for event, _ in self.selector.select(seconds):
            one, react = event.data
            react(one)

    def _stop(self) -> None:
        self.waiting = []
        for one in self.running:
            with contextlib.suppress(OSError):
                one.connection.shutdown(socket.SHUT_WR)
        end = time.monotonic() + _ENDING
        with contextlib.suppress(KeyboardInterrupt):  # a second one does not wait
            while self.running and time.monotonic() < end:
                self._step(0.5)

    def _hear(self, one: _Asked) -> None:
        try:
            data = one.connection.recv(1 << 16)
        except OSError:
            data = b""
        *lines, one.heard = (one.heard + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "stage" in message:
                name, text, expected, stage = message["stage"]
                self.display.show(str(name), str(text), expected, one.begun, stage=bool(stage))
            elif "ended" in message:
                one.ended = int(message["ended"])
            else:
                one.answer = message
        if not data:
            self.selector.unregister(one.connection)
            one.connection.close()
            self._finish(one)

    def _print(self, one: _Asked) -> None:
        data = os.read(one.output, 1 << 16)
        if not data:
            self.selector.unregister(one.output)
            return
        *lines, one.printed = (one.printed + data).split(b"\n")
        if lines:
            self.display.say("".join(line.decode(errors="replace") + "\n" for line in lines))

    def _finish(self, one: _Asked) -> None:
        """It has ended: what it printed last, and its outcome."""
        os.set_blocking(one.output, False)
        with contextlib.suppress(BlockingIOError, KeyError):
            while one.output in self.selector.get_map():
                self._print(one)
        with contextlib.suppress(KeyError):
            self.selector.unregister(one.output)
        os.close(one.output)
        self.running.remove(one)
        self.display.done(one.request.name)
        name = one.request.name
        if "folder" in one.answer:
            self.outcome[name] = Path(one.answer["folder"])
        elif "error" in one.answer:
            self.outcome[name] = revived(one.answer["error"])
        elif one.ended is not None and one.ended < 0:
            sweep(one.request)
            self.outcome[name] = crashed(name, -one.ended)
        else:
            self.outcome[name] = None


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


def export(requests: Sequence[Request], force: bool, at_once: int, keep: bool) -> dict[str, Path | SlipwayError | None]:
    """Export by the warm exporter; the outcome of each request by its name.

    Args:
        at_once: how many together.
        keep: leave the exporter running for further commands.

    Returns:
        folders and errors; ``None`` for what must be exported in another way, as the exporter is not there.
    """
    outcome: dict[str, Path | SlipwayError | None] = {request.name: None for request in requests}
    display = Display(sys.stderr, len(requests))
    try:
        with exporter(display, requests[0].name, keep) as folder:
            if folder is None:
                display.done(requests[0].name)
            else:
                exports = Exports(folder, requests, force, at_once, display)
                exports.run()
                outcome.update(exports.outcome)
    except OSError:
        pass  # the folder is not private, or cannot be made
    finally:
        display.close()
    return outcome


def attempt(outdated: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
    """Export several at once: by the warm exporter, or in this process if there is none.

    Args:
        at_once: how many together.

    Returns:
        The failures by the requests' names. A failure does not stop the others.
    """
    keep = usable()
    outcome: dict[str, Path | SlipwayError | None] = {request.name: None for request in outdated}
    if keep or (at_once > 1 and len(outdated) > 1):
        outcome = export(outdated, force, at_once, keep)
    failures = {name: one for name, one in outcome.items() if isinstance(one, SlipwayError)}
    if len(outdated) > 1:
        for name, error in failures.items():
            note(here.failed(name, error))
    left = [request for request in outdated if outcome[request.name] is None]
    with paused():  # it shows itself what it does
        return {**failures, **here.attempt(left, force)}
