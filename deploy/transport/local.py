"""The transport to this machine itself: the same store, the same supervisor, no network."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Sequence
from typing import IO

from core.errors import HostError
from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard


class LocalChannel:
    """A child process whose input stays open until `end_input`."""

    def __init__(self, argv: Sequence[str]) -> None:
        try:
            self._child = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
                cwd="/",
            )
        except OSError as error:
            hint = f"see that it is there and may be executed: ls -l {argv[0]}"
            raise HostError(f"{argv[0]} cannot be started on this machine.", str(error), hint) from error
        self.heard = Heard("this machine")
        self._selector = selectors.DefaultSelector()
        for pipe, sink in ((self._child.stdout, self.heard.stdout), (self._child.stderr, self.heard.stderr)):
            assert pipe is not None  # noqa: S101 - PIPE was asked for
            self._selector.register(pipe, selectors.EVENT_READ, sink)

    def pump(self, seconds: float) -> int | None:
        if self._selector.get_map():
            for key, _ in self._selector.select(seconds):
                pipe = key.fileobj
                if data := os.read(key.fd, PIECE):
                    self.heard.take(key.data, data)
                else:
                    self._selector.unregister(pipe)
            return None
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def send(self, data: bytes, seconds: float) -> None:
        del seconds  # what runs here takes it at once, or has ended
        pipe, left = self._child.stdin, memoryview(data)
        if pipe is None or pipe.closed:
            raise BrokenPipeError
        while left:
            left = left[pipe.write(left) :]

    def end_input(self) -> None:
        _close(self._child.stdin)

    def close(self) -> None:
        """Closing the lifeline ends what still runs; wait for the supervisor's own end."""
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            _close(pipe)
        self._selector.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()


class LocalTransport(Transport):
    """This machine as a device."""

    longest = 100_000
    """Linux takes 128 KiB in one word (MAX_ARG_STRLEN), and a command under the supervisor is several."""

    def __init__(self, name: str = "local") -> None:
        self.name = name

    def start(self, argv: Sequence[str], _deadline: Deadline = NEVER, /) -> LocalChannel:
        return LocalChannel(argv)

    def close(self) -> None:
        """Nothing is held open."""
