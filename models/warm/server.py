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
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from core.cli.start import again
from core.errors import SlipwayError
from core.processes.interrupts import from_ctrl_c
from models.lowering import progress
from models.warm.client import MARK, SOCKET, code, key, opened

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


def _take_over(request: dict[str, Any], added: Mapping[str, str]) -> None:
    """Take over the environment of the command, beside what libraries have set."""
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    time.tzset()


def _export(connection: socket.socket, request: dict[str, Any], added: Mapping[str, str]) -> int:
    """Export; say stages, then that it is done, or the error. Exit code 0 if one of them was said."""
    _take_over(request, added)

    def say(kind: str, value: Any) -> None:
        connection.sendall(f"{MARK}{json.dumps([kind, value])}\n".encode())

    progress.listener[:] = [lambda *stage: say("stage", stage)]
    from models.export import export

    try:
        export(
            request["model"],
            request["scheme"],
            partitioners=request["partitioners"],
            options=request["options"],
            force=request["force"],
            out=Path(request["out"]),
            format=request["format"],
        )
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
