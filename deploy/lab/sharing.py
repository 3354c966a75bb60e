"""Which place this user's processes on this machine use, and which of them Slipway acquired.

To the coordinator they are all one user. So a process that ends must not release a place that another one uses, and
the last one must not release a place that the user acquired by hand. Each process holds a shared lock on a file for
the place while it uses it; the file says when Slipway acquired it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from core.files import sha256_bytes
from core.paths import cache_dir


@dataclass
class Mark:
    """The file of a place, locked as in use."""

    file: int
    """Its descriptor."""

    @classmethod
    def of(cls, address: str, user: str, place: str) -> Mark:
        """Lock the file; if the last process is just releasing the place, after it."""
        name = f"lab-{sha256_bytes(chr(0).join((address, user, place)).encode())[:24]}"
        file = os.open(cache_dir("locks") / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        return cls(file)

    def acquired(self, changed: float) -> None:
        """Note that Slipway acquired the place; ``changed`` is the coordinator's time of it."""
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, repr(changed).encode(), 0)

    def is_ours(self, changed: float) -> bool:
        """Whether Slipway acquired the place, and nothing has been done to it since."""
        return os.pread(self.file, 100, 0) == repr(changed).encode()

    def last(self) -> bool:
        """Whether no other process uses the place; then none begins to before `close`."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Unlock it."""
        os.close(self.file)
