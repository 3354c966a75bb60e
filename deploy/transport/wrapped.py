"""A transport that is another one with something more; and the one to a Mac."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deploy.scripts import for_mac
from deploy.transport.base import Channel, Progress, Transport
from deploy.transport.deadline import NEVER, Deadline


class Wrapped(Transport):
    """A transport that does what ``inner`` does."""

    def __init__(self, inner: Transport) -> None:
        self.name = inner.name
        self.inner = inner

    @property
    def longest(self) -> int:
        return self.inner.longest

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> Channel:
        return self.inner.start(argv, deadline)

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        self.inner.put(local, remote, progress, deadline, offset)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        self.inner.get(remote, local, limit, deadline)

    def close(self) -> None:
        """Close the connection."""
        self.inner.close()


class MacTransport(Wrapped):
    """A Mac: it gets the scripts that know its programs. Others stay as short as dropbear needs them."""

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> Channel:
        return self.inner.start([for_mac().get(word, word) for word in argv], deadline)
