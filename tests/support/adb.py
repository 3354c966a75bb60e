"""As much of adb's server as tests need: it answers from a table, and its devices' services speak as they are told."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pytest

from tests.support.processes import listening

Speak: TypeAlias = Callable[[socket.socket], None]


class AdbServer:
    """Answers each ``host:`` request with the next answer in the table for it, the last one again and again."""

    def __init__(
        self, answers: Mapping[str, list[bytes]] | None = None, other: bytes = b"", speak: Speak | None = None
    ) -> None:
        self._answers, self._other, self._speak = answers or {}, other, speak or socket.socket.close
        self.asked: list[str] = []
        self.ended = threading.Event()
        """Set when a service was left."""
        self._listening = contextlib.ExitStack()
        self.port = self._listening.enter_context(listening(self._serve))
        self.close = self._listening.close

    def _serve(self, peer: socket.socket) -> None:
        while length := peer.recv(4, socket.MSG_WAITALL):
            request = peer.recv(int(length, 16), socket.MSG_WAITALL).decode()
            self.asked.append(request)
            if request.startswith("host:") and not request.startswith("host:transport"):
                queue = self._answers.get(request, [self._other])
                peer.sendall(queue.pop(0) if len(queue) > 1 else queue[0])
                return
            peer.sendall(b"OKAY")
            if not request.startswith("host:"):
                try:
                    self._speak(peer)
                finally:
                    self.ended.set()


@pytest.fixture
def adb() -> Iterator[Callable[..., AdbServer]]:
    """Starts servers."""
    with contextlib.ExitStack() as stack:

        def start(*how: object, **more: object) -> AdbServer:
            return stack.enter_context(contextlib.closing(AdbServer(*how, **more)))  # type: ignore[arg-type]

        yield start


def okay(text: str) -> bytes:
    """An answer."""
    return b"OKAY%04x" % len(text.encode()) + text.encode()


def packet(kind: int, data: bytes) -> bytes:
    """One of the shell protocol."""
    return struct.pack("<BI", kind, len(data)) + data
