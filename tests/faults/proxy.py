"""A TCP proxy that misbehaves at a given byte of a given phase: cuts, stalls, or changes the byte."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_RESET = struct.pack("ii", 1, 0)


@dataclass
class Proxy:
    """The running proxy. ``phase`` is set by whoever knows it; bytes are counted by phase, both ways together."""

    port: int
    to: int
    phase: str = "connect"
    seen: Counter[str] = field(default_factory=Counter)
    fault: str = ""
    """``cut``, ``stall`` or ``corrupt``; empty for none."""
    where: tuple[str, int] = ("", 0)
    """Phase, and the number of the byte in it."""
    struck: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    sockets: list[socket.socket] = field(default_factory=list)

    @property
    def stalled(self) -> bool:
        return self.struck and self.fault == "stall"

    def arm(self, fault: str = "", phase: str = "", byte: int = 0) -> None:
        """Do ``fault`` from now on, or behave again; what is stalled is cut."""
        with self.lock:
            if self.stalled:
                self._cut()
            self.seen.clear()
            self.phase, self.fault, self.where, self.struck = "connect", fault, (phase, byte), False

    def _judge(self, data: bytes) -> bytes:
        """What becomes of ``data``; called with the lock held."""
        before = self.seen[self.phase]
        self.seen[self.phase] += len(data)
        phase, byte = self.where
        if not self.fault or self.struck or self.phase != phase or not before <= byte < before + len(data):
            return data
        self.struck = True
        at = byte - before
        if self.fault == "corrupt":
            return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        return data[:at]

    def _cut(self) -> None:
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self.sockets.clear()

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Move bytes one way until an end is gone."""
        while True:
            try:
                data = source.recv(65536)
                with self.lock:
                    struck = self.struck
                    kept = self._judge(data) if data else b""
                    now = self.struck and not struck
                if kept and (now or not self.stalled):
                    sink.sendall(kept)
                if now and self.fault == "cut":
                    with self.lock:
                        self._cut()
                    return
            except OSError:
                data = b""
            if not data:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
                return


@contextlib.contextmanager
def proxied(to: int) -> Iterator[Proxy]:
    """A proxy before the port ``to`` of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = Proxy(int(listener.getsockname()[1]), to)
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", proxy.to))
            except OSError:  # what is behind is off
                near.close()
                continue
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with proxy.lock:
                proxy.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threads.append(threading.Thread(target=proxy.pump, args=(source, sink), daemon=True))
                threads[-1].start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        with proxy.lock:
            proxy._cut()
        for thread in threads:
            thread.join(5)
