"""The transport to this machine itself: the same store, the same supervisor, no network."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from core.errors import DeviceFullError, HostError, TransferError
from deploy.transport.base import Progress, Transport
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import PIECE, Heard, open_ordinary, receiving

_CHUNK = 1 << 18


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

    def send(self, data: bytes) -> None:
        if self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.write(data)

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

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """See `deploy.transport.base.Transport`. It copies: the store's bytes must not change with the source."""
        try:
            with local.open("rb") as source, Path(remote).open("ab" if offset else "xb") as sink:
                source.seek(offset)
                while chunk := source.read(_CHUNK):
                    deadline.check(f"copying {local.name}")
                    sink.write(chunk)
                    progress(len(chunk))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DeviceFullError(
                    f"No space left on {self.name} while copying {local.name}.",
                    f"the disk that holds {remote}",
                    "free some space, or set another root for the device in devices.toml",
                ) from error
            raise TransferError(
                f"{self.name} does not store {local.name}.",
                str(error),
                "ls -l, for the folder's permissions; or another root for the device in devices.toml",
            ) from error

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        doing = f"fetching {local.name}"
        deadline.check(doing)
        try:
            source = os.fdopen(open_ordinary(remote), "rb")
        except OSError as error:
            raise TransferError(
                f"{self.name} did not leave {local.name}.", str(error), "the same command again"
            ) from error
        with source, receiving(local, limit, self.name) as take:
            while piece := source.read(PIECE):
                take(piece)
                deadline.check(doing)

    def close(self) -> None:
        """Nothing is held open."""
