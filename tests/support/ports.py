"""Ports of 127.0.0.1 for servers that open them later, or again and again."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path


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
