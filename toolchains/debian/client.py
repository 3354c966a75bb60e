"""What everything that reads Debian's archive shares: its error, its files, another try after a broken connection."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from core.console import step
from core.errors import HostError

FRESH_SECONDS = 7 * 24 * 3600
"""Lists older than this are read again before something is downloaded."""


class ArchiveError(HostError):
    """The archive could not be read.

    Args:
        retry: it may succeed when tried again.
        absent: the lists lack it, or are out of date.
        half_updated: the mirror is in the middle of an update.
    """

    def __init__(
        self, what: str, cause: str, hint: str, *, retry: bool = False, absent: bool = False, half_updated: bool = False
    ) -> None:
        super().__init__(what, cause, hint)
        self.retry = retry
        self.absent = absent
        self.half_updated = half_updated


@dataclass(frozen=True)
class Item:
    """One file of the archive that would be downloaded."""

    uri: str
    name: str
    size: int
    sha256: str

    @property
    def spec(self) -> str:
        """``package=version``, which names this file's package."""
        package, version, _ = self.name.removesuffix(".deb").split("_", 2)
        return f"{package}={unquote(version)}"


def downloading(suite: str, items: Sequence[Item], folder: Path, fetch: Callable[[Callable[[], None]], object]) -> None:
    """Show the step "downloading" while ``fetch`` fills ``folder``; it calls its argument now and then."""
    count = f"{len(items)} packages" if len(items) > 1 else items[0].name.split("_")[0]
    total = sum(item.size for item in items)
    with step(f"downloading {count} (Debian {suite})", announce=False) as shown:

        def watch() -> None:
            # A file may be renamed while we look.
            with contextlib.suppress(FileNotFoundError):
                shown.bytes(sum(file.stat().st_size for file in folder.rglob("*")), total)

        retrying(lambda: fetch(watch))


def retrying(action: Callable[[], object]) -> None:
    """Run ``action``; again, up to three times with growing pauses, when the network was at fault."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    transient = retry_if_exception(lambda error: isinstance(error, ArchiveError) and error.retry)
    policy = Retrying(retry=transient, stop=stop_after_attempt(3), wait=wait_exponential(1, max=8), reraise=True)
    policy(action)
