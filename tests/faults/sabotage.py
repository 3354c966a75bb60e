"""A device whose every operation can go wrong: this machine, reached through a transport that misbehaves once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.errors import UnreachableError
from deploy.transport.base import Progress
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.local import LocalChannel, LocalTransport
from tests.support.processes import marked

FAULTS = {
    "never started": "the connection breaks before a command is sent",
    "answer lost": "the command runs to its end on the device; the connection breaks before its answer comes",
    "command killed": "something on the device kills the command's supervisor",
    "device restarted": "all processes of the device end, and nothing answers",
}


class Sabotage(LocalTransport):
    """Does ``fault`` at operation number ``at``, counted from 0; -1 for never."""

    def __init__(self, home: Path, fault: str = "", at: int = -1) -> None:
        super().__init__("board")
        self._home, self._fault, self._at = home, fault, at
        self.count = 0
        self.struck = False
        self._dead = self._inside = False

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> LocalChannel:
        if self._inside:
            return super().start(argv, deadline)
        if self._dead:
            raise self._broken()
        if not self._turn():
            return super().start(argv, deadline)
        if self._fault == "never started":
            self._dead = True
            raise self._broken()
        channel = super().start(argv)
        if self._fault == "command killed":
            os.kill(channel._child.pid, signal.SIGKILL)
            return channel
        if self._fault == "answer lost":
            self._end(channel)
        channel.close()
        self._restart()
        raise self._broken()

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """See `deploy.transport.base.Transport`; a fault comes when half is there."""
        if self._dead:
            raise self._broken()
        if not self._turn():
            with self._one_operation():
                super().put(local, remote, progress, deadline, offset)
            return
        data = local.read_bytes()
        with Path(remote).open("ab" if offset else "wb") as sink:
            sink.write(data[offset : (offset + len(data)) // 2])
        self._restart()
        raise self._broken()

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        if self._dead or self._turn():
            self._restart()
            raise self._broken()
        with self._one_operation():
            super().get(remote, local, limit, deadline)

    @contextlib.contextmanager
    def _one_operation(self) -> Iterator[None]:
        """For the block, commands are parts of an operation that was counted."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _turn(self) -> bool:
        self.count += 1
        self.struck = self.struck or self.count - 1 == self._at
        return self.count - 1 == self._at

    def _end(self, channel: LocalChannel) -> None:
        """Let the command do its work; one that stays (the lock's holder) has done it when it says so."""
        for _ in range(300):
            if channel.pump(0.1) is not None or b"\nready\n" in channel.heard.stdout:
                return

    def _restart(self) -> None:
        self._dead = True
        if self._fault == "device restarted":
            for pid in marked(str(self._home)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _broken(self) -> UnreachableError:
        return UnreachableError("The connection to board broke.", "on purpose", "")
