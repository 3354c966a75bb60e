"""Exports by a process that waits in memory: it has loaded the exporter, and exports in copies of itself.

A command finds or starts it (`attempt`), asks for several exports at once, and shows what they do. Each copy begins
without anything of earlier exports: user's files are imported anew. The first process (`main`) itself never computes,
so no thread of torch's exists that a copy would miss. It ends after idle minutes, or when its socket, its code or its
key is gone.

Usage: python -m models.warm FOLDER KEY IDLE_SECONDS
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from core import errors
from core.cli.start import again
from core.console import note, paused
from core.environment import bootstrap
from core.errors import ExportError, SlipwayError
from core.files import locked, sha256_bytes
from core.paths import ROOT, cache_dir
from core.processes.commands import lasting
from core.processes.interrupts import from_ctrl_c
from models import export as here
from models.export import sweep
from models.lowering import progress
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


def start(folder: Path, wanted: str, idle: float) -> subprocess.Popen[bytes]:
    """Start an exporter in the new folder ``folder``; it is ready when its socket is there."""
    log = log_path("warm")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "models.warm", os.fspath(folder), wanted, str(idle)],
            cwd=ROOT,
            env=lasting(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def exporter(display: Display, name: str) -> Path | None:
    """The folder of an exporter that is ready, for which the export ``name`` waits; ``None`` if it does not start."""
    wanted, base = key(), home()
    folder = base / wanted[:32]
    child: subprocess.Popen[bytes] | None = None
    try:
        with locked(f"warm-{base.name}"):
            if (ready := connect(folder)) is not None:
                ready.close()
            else:
                # Exporters of older code end without their sockets. What they export now goes on.
                for other in base.iterdir():
                    shutil.rmtree(other, ignore_errors=True)
                folder.mkdir(mode=0o700)
                child = start(folder, wanted, IDLE)
                begun = time.monotonic()
                display.show(name, "loading the exporter", None, begun)
                while not (folder / SOCKET).exists() and child.poll() is None and time.monotonic() - begun < _LOADING:
                    time.sleep(0.05)
        return folder if (folder / SOCKET).exists() else None
    finally:
        if child is not None and not (folder / SOCKET).exists():
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
        "export": {
            "model": request.model,
            "scheme": request.scheme.name,
            "partitioners": request.partitioners,
            "options": request.options.to_json(),
            "force": force,
            "format": request.format,
        },
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
                outcome = getattr(errors, value["class"], ExportError)(*value["parts"])
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


def crashed(name: str, number: int) -> ExportError:
    """The error for an export whose process a signal has ended."""
    cause = "the model's code, or a library that it calls, has crashed"
    if number == signal.SIGKILL:
        cause = "something has killed it: often the system, for want of memory"
    return ExportError(
        f"{name}: the export's process ended with {signal.Signals(number).name}.", cause,
        f"read the end of its log, {log_path(name)}",
    )  # fmt: skip


def export(requests: Sequence[Request], force: bool, at_once: int) -> list[SlipwayError | bool]:
    """Export by the warm exporter, ``at_once`` together.

    Returns:
        For each request whether it is done, or its error; ``False``: it must be exported in another way.
    """
    display = Display(sys.stderr, len(requests))
    try:
        if (folder := exporter(display, requests[0].name)) is not None:
            return _all(folder, requests, force, at_once, display)
        display.done(requests[0].name)
    except OSError:
        pass  # the folder is not private, or cannot be made
    finally:
        display.close()
    return [False] * len(requests)


def attempt(outdated: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
    """Export several: by the warm exporter ``at_once`` together, or one after another in this process if there is none.

    Returns:
        The failures by the requests' names. A failure does not stop the others.
    """
    several = len(outdated) > 1
    found = export(outdated, force, at_once) if usable() else [False] * len(outdated)
    failures = {one.name: error for one, error in zip(outdated, found, strict=True) if isinstance(error, SlipwayError)}
    for name, error in failures.items() if several else ():
        note(here.failed(name, error))
    left = [one for one, done in zip(outdated, found, strict=True) if done is False]
    with paused():  # it shows itself what it does
        return {**failures, **here.attempt(left, force)}


LOADS = (
    "torch",
    "torchao.quantization.pt2e.quantize_pt2e",
    "torchao.quantization.quant_api",
    "executorch.kernels.quantized",
    "executorch.exir",
    "executorch.exir.passes.init_mutable_pass",
    "executorch.devtools.etrecord",
    "executorch.backends.xnnpack.partition.xnnpack_partitioner",
    "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
    "executorch.backends.xnnpack.utils.configs",
    "models.export",
    "models.lowering.shortcuts",
    "models.loading",
    "models.lowering.lowering",
    "models.lowering.quantize",
    "models.reference.referencing",
    "core.formats.program",
)
"""What exports load. It must not start a thread, nor the runtime of references (`models.reference.host`)."""
_GRACE = 10.0
"""Seconds for an export to clean up after its command is gone."""
_LOOK = 5.0
"""Seconds between two looks at the socket and at the clock."""


def _export(connection: socket.socket, request: dict[str, Any], added: Mapping[str, str]) -> int:
    """Export; say stages, then that it is done, or the error. Exit code 0 if one of them was said."""
    # The environment of the command, beside what libraries have set.
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    time.tzset()

    def say(kind: str, value: Any) -> None:
        connection.sendall(f"{MARK}{json.dumps([kind, value])}\n".encode())

    progress.listener[:] = [lambda *stage: say("stage", stage)]
    try:
        here.export(**request["export"], out=Path(request["out"]))
    except SlipwayError as error:
        say("error", {"class": type(error).__name__, "parts": [error.what, error.cause, error.hint, error.names]})
        return 0
    except (KeyboardInterrupt, Exception) as error:
        if not from_ctrl_c(error):
            raise
        return 130
    say("done", None)
    return 0


def _become(connection: socket.socket, request: dict[str, Any], added: Mapping[str, str]) -> NoReturn:
    """What a copy does. It never returns."""
    code = 1
    try:
        os.setsid()
        sys.unraisablehook = again
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for number in (1, 2):  # what it prints is the command's to show
            os.dup2(connection.fileno(), number)
        gc.freeze()  # a look for cycles would copy all pages of the first process
        code = _export(connection, request, added)
    except BaseException:  # noqa: BLE001  # whatever it is, it must not run the first process's own ends
        os.write(2, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(connection: socket.socket, added: Mapping[str, str]) -> None:
    """Read a request, export in a copy of this process, end that if the command is gone, and say how it ended."""
    connection.settimeout(5.0)
    line = connection.makefile("rb").readline()
    if not line:
        return  # somebody asked whether anybody is here
    connection.settimeout(None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        _become(connection, json.loads(line), added)
    events, ended, end = select.poll(), os.pidfd_open(pid), None
    events.register(ended, select.POLLIN)
    events.register(connection, select.POLLIN)
    while ended not in (ready := dict(events.poll(1000))):
        if ready:  # the end of the connection: nothing else comes
            events.unregister(connection)
            os.kill(pid, signal.SIGINT)
            end = time.monotonic() + _GRACE
        elif end is not None and time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    # What it started itself and left behind.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        connection.sendall(f"{MARK}{json.dumps(['ended', os.waitstatus_to_exitcode(status)])}\n".encode())


def _there(folder: Path, own: int) -> bool:
    """Whether the socket still is this process's own."""
    try:
        return (folder / SOCKET).lstat().st_ino == own
    except OSError:
        return False


def serve(listening: socket.socket, folder: Path, idle: float, added: Mapping[str, str]) -> None:
    """Until it has been idle for long enough, or the socket is gone."""
    own, used = (folder / SOCKET).lstat().st_ino, time.monotonic()
    listening.settimeout(_LOOK)
    while _there(folder, own) and time.monotonic() - used < idle:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        used = time.monotonic()
        if os.fork() == 0:
            try:
                listening.close()
                _serve(connection, added)
            finally:
                os._exit(0)
        connection.close()
    if _there(folder, own):
        shutil.rmtree(folder, ignore_errors=True)


def main(folder: Path, wanted: str, idle: float) -> int:
    """Load, then serve. The socket has its name when everything is loaded."""
    if key() != wanted:
        return errno.ESTALE  # the code has changed, or the environment is another
    before, now = dict(os.environ), code()
    for name in LOADS:
        importlib.import_module(name)
    if code() != now:
        return errno.ESTALE  # it changed while it was loaded
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that serve
    with socket.socket(socket.AF_UNIX) as listening:
        os.umask(0o177)
        with opened(folder) as path:
            listening.bind(f"{path}/{SOCKET}.new")
        listening.listen(64)
        (folder / f"{SOCKET}.new").rename(folder / SOCKET)
        serve(listening, folder, idle, added)
    return 0


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
