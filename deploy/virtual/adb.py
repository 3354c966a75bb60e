"""The private adb server of the virtual devices: supervised like a machine, it ends after disuse.

It listens on 127.0.0.1 alone, on a port of its own, touches no USB device and keeps its key beside its state: the
user's own server, devices and ``~/.android`` are left alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from core.errors import HostError
from core.files import locked
from deploy.transport.adb.port import HOST
from deploy.virtual.machines import abandon, gone, last_lines, spawn_supervisor
from deploy.virtual.state import Folder, State, read_state
from deploy.virtual.supervisor import PORT, Launch

if TYPE_CHECKING:
    from deploy.transport.adb.server import Server

NAME = "adb-server"
"""Name of its folder among those of the devices."""
_IDLE_SECONDS = 20 * 60.0
_START_SECONDS = 20.0


def ensure_server() -> int:
    """The port of the server; starts it if needed and marks it as used.

    Raises:
        HostError: this machine has no adb, or it does not start.
    """
    folder = Folder.of(NAME)
    folder.touch()
    state = _up(folder)
    if state is None:
        with locked(folder.lock):
            state = _up(folder) or _start(folder)
    return state.port


def private_server() -> Server:
    """The server for virtual devices: started if it is not running, ended by its supervisor after disuse."""
    from deploy.transport.adb.server import Server

    return Server(host=HOST, port=ensure_server())


def _up(folder: Folder) -> State | None:
    state = read_state(folder)
    return state if state is not None and state.ready and state.running else None


def _start(folder: Folder) -> State:
    from deploy.transport.adb.server import adb_program

    settings = (
        f"ANDROID_USER_HOME={folder.path}", f"HOME={folder.path}", "ADB_USB=0", "ADB_MDNS_OPENSCREEN=0",
        "ADB_MDNS_AUTO_CONNECT=", "ADB_LOCAL_TRANSPORT_MAX_PORT=5554",
    )  # fmt: skip
    argv = ("/usr/bin/env", *settings, adb_program(), "-L", f"tcp:localhost:{PORT}", "nodaemon", "server")
    Launch(argv, _IDLE_SECONDS).write(folder)
    folder.private(folder.log, "")
    pid = spawn_supervisor(folder)
    end = time.monotonic() + _START_SECONDS
    try:
        while time.monotonic() < end and not gone(pid):
            state = read_state(folder)
            if state is not None and state.supervisor.pid == pid and _answers(state.port):
                state = replace(state, ready=True)
                state.write(folder.state)
                return state
            time.sleep(0.05)
    except BaseException:
        abandon(folder, pid)
        raise
    abandon(folder, pid)
    hint = f"see {folder.log}, then the same command again"
    raise HostError("The adb server of the virtual devices did not start.", last_lines(folder.log), hint)


def _answers(port: int) -> bool:
    from deploy.transport.adb.server import running_server

    try:
        return running_server(port) is not None
    except HostError:
        return False  # it listens before it answers
