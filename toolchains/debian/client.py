"""What both ways to Debian's archive share: apt (`toolchains.debian.apt`), and our own reader where there is no apt."""

from __future__ import annotations

import abc
import contextlib
import lzma
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote as quote_path
from urllib.parse import unquote

from core.console import step
from core.errors import HostError
from core.paths import cache_dir
from toolchains.debian.sources import find_mirror

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


@dataclass(frozen=True)
class Client(abc.ABC):
    """The archive for one suite and architecture. Callers hold the lock ``debian-<suite>-<arch>``."""

    suite: str
    arch: str
    sources: bool = False
    """Read the list of source packages instead of that of binary ones."""

    @property
    def folder(self) -> Path:
        """The folder of this suite and architecture in the cache; both ways share the packages in it."""
        return cache_dir("debian", f"{self.suite}-{'source' if self.sources else self.arch}")

    @abc.abstractmethod
    def _get(self, uri: str, file: Path, sha256: str = "") -> None:
        """Download one file; with a digest it is compared."""

    def download_pinned(self, filename: str, sha256: str, folder: Path, newest: Item | None = None) -> Path:
        """Download a file whose digest is known, while the list of packages is refused or knows only ``newest``.

        A mirror in the middle of its update has signed digests of lists that it has not got yet. The list is read
        unsigned here, only for the folder of the file in the archive.
        """
        package, version, arch = filename.removesuffix(".deb").split("_")
        if newest is not None:
            # Names in the archive lack the version's epoch.
            name = f"{package}_{unquote(version).rpartition(':')[2]}_{arch}.deb"
            self._get(f"{newest.uri.rpartition('/')[0]}/{quote_path(name)}", folder / filename, sha256)
            return folder / filename
        mirror = find_mirror().uris[0].rstrip("/")
        packages = folder / "Packages.xz"
        self._get(f"{mirror}/dists/{self.suite}/main/binary-{self.arch}/Packages.xz", packages)
        with lzma.open(packages, "rt", encoding="utf-8") as text:
            for stanza in text.read().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"\S+: ", line))
                if fields.get("Package") == package and fields.get("Version") == unquote(version):
                    self._get(f"{mirror}/{quote_path(fields['Filename'])}", folder / filename, sha256)
                    return folder / filename
        raise ArchiveError(f"{self.suite}'s list has no {filename}.", "", "the same command again", absent=True)


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
