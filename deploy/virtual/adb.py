"""The private adb server of the virtual devices: supervised like a machine, it ends after disuse.

It listens on 127.0.0.1 alone, on a port of its own, touches no USB device and keeps its key beside its state: the
user's own server, devices and ``~/.android`` are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import HostError
from core.files import locked
from deploy.transport.adb.port import HOST
from deploy.virtual.machines import last_lines, supervised, up
from deploy.virtual.state import Folder, State
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
    state = up(folder)
    if state is None:
        with locked(folder.lock):
            state = up(folder) or _start(folder)
    return state.port


def private_server() -> Server:
    """The server for virtual devices: started if it is not running, ended by its supervisor after disuse."""
    from deploy.transport.adb.server import Server

    return Server(host=HOST, port=ensure_server())


def _start(folder: Folder) -> State:
    from deploy.transport.adb.server import adb_program

    settings = (
        f"ANDROID_USER_HOME={folder.path}", f"HOME={folder.path}", "ADB_USB=0", "ADB_MDNS_OPENSCREEN=0",
        "ADB_MDNS_AUTO_CONNECT=", "ADB_LOCAL_TRANSPORT_MAX_PORT=5554",
    )  # fmt: skip
    argv = ("/usr/bin/env", *settings, adb_program(), "-L", f"tcp:localhost:{PORT}", "nodaemon", "server")
    Launch(argv, _IDLE_SECONDS).write(folder)
    folder.private(folder.log, "")
    state = supervised(folder, _START_SECONDS, lambda state: _answers(state.port), "it did not answer")
    if isinstance(state, State):
        return state
    hint = f"see {folder.log}, then the same command again"
    raise HostError("The adb server of the virtual devices did not start.", last_lines(folder.log), hint)


def _answers(port: int) -> bool:
    from deploy.transport.adb.server import running_server

    try:
        return running_server(port) is not None
    except HostError:
        return False  # it listens before it answers
