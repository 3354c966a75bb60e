"""Debian's archive, read without root and without apt, on any Linux, and checked by the archive's own keys.

The signed list of a suite names its lists of packages by digest, and these name the packages by digest. Everything is
refused that does not match; what was read is kept, and checked again each time that it is used.
"""

from __future__ import annotations

import functools
import lzma
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.console import step
from core.errors import HostError
from core.files import disk_errors, sha256_bytes, write_atomic
from core.paths import cache_dir
from toolchains.debian import client
from toolchains.debian.client import ArchiveError, Item, keyring, retrying
from toolchains.debian.index import Closure, Index, find
from toolchains.debian.sources import find_mirror
from toolchains.debian.tree import need_reader

_MOST_RELEASE = 4 << 20
"""Bytes of a suite's signed list; sid's has 0.2 MB."""
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True)
class Reader:
    """The archive for one suite and architecture. Callers hold the lock ``debian-<suite>-<arch>``."""

    suite: str
    arch: str

    @property
    def folder(self) -> Path:
        """The folder of this suite and architecture in the cache."""
        return cache_dir("debian", f"{self.suite}-{self.arch}")

    @property
    def _kept(self) -> Path:
        return self.folder / "archive"

    @property
    def _signed(self) -> Path:
        return self._kept / "InRelease"

    def _list_file(self, sha256: str) -> Path:
        return self._kept / f"Packages-{sha256[:16]}.xz"

    @property
    def _list_path(self) -> str:
        return f"main/binary-{self.arch}/Packages.xz"

    @property
    def lists_age(self) -> float:
        """Seconds since the lists were read; infinite when there are none."""
        if not self._signed.is_file() or self._kept_release() is None:
            return float("inf")
        return max(0.0, time.time() - self._signed.stat().st_mtime)

    def _kept_release(self) -> client.Release | None:
        """What was read before, if it is whole."""
        try:
            return client.read_release(self._signed.read_bytes(), keyring(find_mirror()), self.suite)
        except (OSError, ArchiveError):
            return None

    def refresh(self) -> None:
        """Read the archive's lists again.

        Raises:
            ArchiveError: not signed by Debian, too old, of another suite, or changed on its way.
            HostError: there are no keys to check signatures with.
        """
        if not _PLAIN.fullmatch(self.suite) or not _PLAIN.fullmatch(self.arch):
            hint = "names as bookworm and arm64"
            raise ArchiveError(f"There is no Debian {self.suite} for {self.arch}.", "", hint, absent=True)
        need_reader()
        mirror = find_mirror()
        keys = keyring(mirror)
        base = f"{mirror.uri.rstrip('/')}/dists/{self.suite}"
        self._kept.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".lists.*"):  # of a process that was killed; the caller holds the lock
            shutil.rmtree(left, ignore_errors=True)
        said = f"reading Debian {self.suite}'s list of packages ({self.arch})"
        with (
            disk_errors("reading Debian's lists"),
            tempfile.TemporaryDirectory(prefix=".lists.", dir=self.folder) as name,
            step(said, "debian-lists", announce=False) as shown,
        ):
            signed = Path(name, "InRelease")
            retrying(lambda: client.get(f"{base}/InRelease", signed, most=_MOST_RELEASE))
            raw = signed.read_bytes()
            new = client.read_release(raw, keys, self.suite)
            client.check_age(self.suite, new, self._kept_release(), time.time())
            size, digest = self._named(new)
            file = self._list_file(digest)
            if not (file.is_file() and sha256_bytes(file.read_bytes()) == digest):
                fresh = Path(name, "list.xz")
                # By its digest, under which a mirror that is being updated still has the old one.
                uri = f"{base}/{self._list_path.rpartition('/')[0]}/by-hash/SHA256/{digest}"
                watch = lambda: shown.bytes(fresh.stat().st_size, size)  # noqa: E731
                retrying(lambda: client.get(uri, fresh, size=size, sha256=digest, watch=watch))
                fresh.replace(file)
            # The signed list last: what was read before stays whole until then.
            write_atomic(self._signed, raw)
        for old in self._kept.glob("*.xz"):
            if old != file:
                old.unlink(missing_ok=True)

    def _named(self, signed: client.Release) -> tuple[int, str]:
        """Size and SHA-256 of the list of packages."""
        if self._list_path not in signed.files:
            raise ArchiveError(
                f"Debian {self.suite} has no list of packages for {self.arch}.",
                f"its signed list names no {self._list_path}",
                "set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror",
                absent=True,
            )
        return signed.files[self._list_path]

    def _text(self) -> str:
        """The list of packages; its digest and the signature of the list that names it are checked each time."""
        need_reader()
        size, digest = self._named(client.read_release(self._signed.read_bytes(), keyring(find_mirror()), self.suite))
        file = self._list_file(digest)
        raw = file.read_bytes() if file.is_file() else b""
        if len(raw) != size or sha256_bytes(raw) != digest:
            self._signed.unlink(missing_ok=True)
            raise ArchiveError(
                f"The kept list of Debian {self.suite}'s packages is damaged.",
                "something has changed a file in Slipway's cache",
                "the same command again, which reads it again",
                absent=True,
            )
        return lzma.decompress(raw).decode("utf-8")

    def plan(self, packages: Sequence[str], closure: bool) -> list[Item]:
        """The files that are to be downloaded, sorted by name; touches no network."""
        if not self._signed.is_file():
            raise ArchiveError(f"Debian {self.suite}'s lists were not read.", "", "the same command again", absent=True)
        index = _index(self, self._signed.stat().st_mtime_ns)
        found = [find(index, spec, self.suite) for spec in packages]
        if closure:
            chosen = Closure(index, self.suite)
            chosen.add(found)
            found = list(chosen.chosen.values())
        mirror = find_mirror().uri
        return [package.item(mirror) for package in dict.fromkeys(found)]

    def download(self, items: Sequence[Item], folder: Path) -> None:
        """Download ``items`` into ``folder``; each is compared with the signed list."""
        count = f"{len(items)} packages" if len(items) > 1 else items[0].name.split("_")[0]
        total = sum(item.size for item in items)
        with step(f"downloading {count} (Debian {self.suite})", announce=False) as shown:

            def watch() -> None:
                shown.bytes(sum(file.stat().st_size for file in folder.iterdir()), total)

            def fetch() -> None:
                for item in items:
                    file = folder / item.name
                    if not (file.is_file() and file.stat().st_size == item.size):  # from the try before this one
                        client.get(item.uri, file, size=item.size, sha256=item.sha256, watch=watch)

            retrying(fetch)


@functools.lru_cache(maxsize=2)
def _index(reader: Reader, _: int) -> Index:
    """A list has 60 MB, and a build asks for several packages of it."""
    try:
        return Index(reader._text())
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        what = f"Debian {reader.suite}'s list cannot be unpacked."
        raise HostError(what, str(error), "./inv clean --cache") from error
