"""The port of adb's server. In a module of its own, since the rest of adb takes 0.2 s to import."""

from __future__ import annotations

import os
import socket

from core.errors import ConfigError

HOST = "127.0.0.1"
PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
DEFAULT_PORT = 5037


def listens(port: int) -> bool:
    """Whether a process listens on ``port`` of this machine."""
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def default_port() -> int:
    """adb's own port.

    Raises:
        ConfigError: the environment's value is not a port.
    """
    text = os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT)
    if not (text.isdigit() and 0 < int(text) < 65536):
        raise ConfigError(f"{PORT_VARIABLE}={text} is not a port.", "", f"unset {PORT_VARIABLE}")
    return int(text)
