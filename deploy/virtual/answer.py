"""Whether a server inside a virtual device answers: QEMU accepts connections long before it does."""

from __future__ import annotations

import socket
import struct

_HEADER = struct.Struct("<6I")
_VERSION = 0x01000001
_MAX_DATA = 1 << 20
_BANNER = b"host::features=shell_v2"


def answers(login: str, host: str, port: int, seconds: float = 3.0) -> bool:
    """Whether an ``ssh`` or ``adb`` server greets at the address within ``seconds``."""
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.settimeout(seconds)
            if login == "adb":
                connection.sendall(_adb_message(b"CNXN", _VERSION, _MAX_DATA, _BANNER))
                # AUTH and STLS are greetings too, of a server that checks the client's key.
                return connection.recv(4, socket.MSG_WAITALL) in {b"CNXN", b"AUTH", b"STLS"}
            return connection.recv(4, socket.MSG_WAITALL) == b"SSH-"
    except OSError:
        return False


def _adb_message(command: bytes, first: int, second: int, payload: bytes) -> bytes:
    """One message of the protocol between adb's server and a device (adb's protocol.txt)."""
    number = int.from_bytes(command, "little")
    head = _HEADER.pack(number, first, second, len(payload), sum(payload), number ^ 0xFFFFFFFF)
    return head + payload
