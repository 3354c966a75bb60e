"""The warm exporter: loads the exporter once, and exports in copies of itself, one copy for each export.

The copies begin without anything of earlier exports: user's files are imported anew. This process itself never
computes, so no thread of torch's exists that a copy would miss. It ends after idle minutes, or when its socket,
its code or its key is gone.

Usage: python -m models.warm.server FOLDER KEY IDLE_SECONDS
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.cli.start import again
from core.errors import SlipwayError
from core.processes.interrupts import from_ctrl_c
from models.lowering import progress
from models.warm.client import BUSY, SOCKET, code, key

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
    "models.lowering.audit",
    "models.lowering.shortcuts",
    "models.loading",
    "models.lowering.lowering",
    "models.lowering.quantize",
    "models.reference.referencing",
    "core.formats.program",
)
"""What exports load. It must not start a thread, nor the runtime of references (`models.lowering.forked`)."""
MOST = 1 << 20
"""Bytes of a request."""
_GRACE = 10.0
"""Seconds for an export to clean up after its command is gone."""
_LOOK = 5.0
"""Seconds between two looks at the socket and at the clock."""


def may_connect(connection: socket.socket) -> bool:
    """Whether the other end belongs to the same user."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


@dataclass
class _Export:
    """An export that runs."""

    pid: int
    connection: socket.socket
    end: float = float("inf")
    """On the monotonic clock: when it is killed."""


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> tuple[dict[str, Any], int]:
    """A request and the descriptor for the copy's output.

    Raises:
        ValueError: it is none. OSError: nothing came in time.
    """
    connection.settimeout(5.0)
    data, descriptors, _, _ = socket.recv_fds(connection, MOST, 1)
    if not data or len(descriptors) != 1:
        for one in descriptors:
            os.close(one)
        raise ValueError("no request")
    try:
        while not data.endswith(b"\n"):
            more = connection.recv(MOST)
            if not more or len(data) > MOST:
                raise ValueError("an unfinished request")
            data += more
        return json.loads(data), descriptors[0]
    except (OSError, ValueError):
        os.close(descriptors[0])
        raise


def _take_over(request: dict[str, Any], added: Mapping[str, str]) -> None:
    """Take over the environment of the command, beside what libraries have set."""
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    time.tzset()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _export(connection: socket.socket, request: dict[str, Any], added: Mapping[str, str]) -> int:
    """Export; send stages, then ``folder`` or ``error``. Exit code 0 if one of them was sent."""
    _take_over(request, added)

    def send(message: dict[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    def heard(name: str, text: str, expected: float | None, stage: bool) -> None:
        send({"stage": [name, text, expected, stage]})

    progress.listener[:] = [heard]
    from models.export import export

    try:
        folder = export(
            request["model"],
            request["scheme"],
            partitioners=request["partitioners"],
            options=request["options"],
            force=request["force"],
            out=Path(request["out"]) if request["out"] else None,
            format=request["format"],
        )
    except SlipwayError as error:
        send({"error": {"class": type(error).__name__, "parts": [error.what, error.cause, error.hint, error.names]}})
        return 0
    except (KeyboardInterrupt, Exception) as error:
        if not from_ctrl_c(error):
            raise
        return 130
    send({"folder": os.fspath(folder)})
    return 0


class Server:
    """Accepts commands, makes copies, and reports how they end."""

    def __init__(self, listening: socket.socket, folder: Path, idle: float, added: Mapping[str, str]) -> None:
        self.listening = listening
        self.added = dict(added)
        """Variables that libraries have set."""
        self.folder = folder
        self.idle = idle
        self.running: dict[int, _Export] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(listening, selectors.EVENT_READ)
        self.own = (folder / SOCKET).lstat().st_ino
        self.wake, wake = os.pipe()
        for end in (self.wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.wake, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until it has been idle for long enough, or the socket is gone."""
        used = looked = time.monotonic()
        while True:
            for event, _ in self.selector.select(1.0 if self.running else _LOOK):
                if event.fileobj is self.listening:
                    self._accept()
                elif event.fileobj == self.wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, 4096)
                else:
                    self._gone(event.data)
            self._reap()
            now = time.monotonic()
            if self.running:
                used = now
            for one in self.running.values():
                if now > one.end:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(one.pid, signal.SIGKILL)
            if now - looked > _LOOK:
                looked = now
                if not self._there() and not self.running:
                    return
            if now - used > self.idle:
                return

    def _there(self) -> bool:
        """Whether the socket still is this process's own."""
        try:
            return (self.folder / SOCKET).lstat().st_ino == self.own
        except OSError:
            return False

    def _accept(self) -> None:
        connection, _ = self.listening.accept()
        if not may_connect(connection):
            connection.close()
            return
        try:
            request, output = _receive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        with contextlib.suppress(OSError):
            (self.folder / BUSY).touch()
        pid = os.fork()
        if pid == 0:
            self._become(connection, request, output)
        os.close(output)
        connection.settimeout(None)
        self.running[pid] = _Export(pid, connection)
        self.selector.register(connection, selectors.EVENT_READ, self.running[pid])

    def _become(self, connection: socket.socket, request: dict[str, Any], output: int) -> None:
        """What a copy does. It never returns."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.unraisablehook = again
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self.selector.close()
            self.listening.close()
            for one in self.running.values():
                one.connection.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            gc.freeze()  # a look for cycles would copy all pages of the first process
            connection.settimeout(None)
            code = _export(connection, request, self.added)
        except BaseException:  # noqa: BLE001  # whatever it is, it must not run the first process's own ends
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _gone(self, export: _Export) -> None:
        """The command has ended, or says something: nothing is expected, so both end the export."""
        self.selector.unregister(export.connection)
        export.end = time.monotonic() + _GRACE
        with contextlib.suppress(ProcessLookupError):
            os.kill(export.pid, signal.SIGINT)

    def _reap(self) -> None:
        for pid in list(self.running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                one = self.running.pop(pid)
                with contextlib.suppress(KeyError):
                    self.selector.unregister(one.connection)
                # What it started itself and left behind.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                if not self.running:
                    (self.folder / BUSY).unlink(missing_ok=True)
                _send(one.connection, {"ended": os.waitstatus_to_exitcode(status)})
                one.connection.close()


def listen(folder: Path) -> socket.socket:
    """A socket in ``folder``, which only this user may enter; its path may be longer than a socket's."""
    listening = socket.socket(socket.AF_UNIX)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        listening.bind(f"/proc/self/fd/{handle}/{SOCKET}.new")
    finally:
        os.umask(before)
        os.close(handle)
    listening.listen(64)
    return listening


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
    with contextlib.suppress(FileNotFoundError):
        (folder / f"{SOCKET}.new").unlink()
    listening = listen(folder)
    (folder / f"{SOCKET}.new").rename(folder / SOCKET)
    server = Server(listening, folder, idle, added)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve()
    finally:
        if server._there():
            (folder / SOCKET).unlink()
            (folder / BUSY).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        for one in server.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
