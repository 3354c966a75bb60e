"""What vouches for the bytes of a file on a device: a digest of now, or an earlier one and nothing changed since.

A digest of every file before every run would cost more than a small run itself. So it is computed when a file is
uploaded, and what the device says of the file right after is noted here, on this machine: its size, its inode, and the
times of the last change to its bytes and to itself. While all of these stay the same, the digest stands; the last of
them cannot be set back by any program on the device short of changing its clock. As soon as one differs, and after
so many days in any case (bits rot without any trace in these), the digest is computed again.

The notes are kept by the id in the root's marker, so that another root, or the same one made anew, starts afresh.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from core.files import locked, write_json
from core.paths import cache_dir
from deploy.store.store import Blob, Look, Store
from deploy.transport.deadline import Deadline

DAY = 86_400.0
_KEPT = 4
"""Looks of one file that are remembered: links to it are copies where a file system has none."""
_FORGOTTEN = 400 * DAY
_ROOTS = 1000
"""Roots that are remembered."""

How = Literal["runner", "digest now", "unchanged"]


class Vouched(BaseModel):
    """What vouches for a program's files, or a bundle's: the weakest of all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: How
    """``runner``: the runner computed it of what it ran; ``digest now``: the device did during this deploy, at the
    upload or afterwards; ``unchanged``: earlier, and nothing changed since."""
    since: str = ""
    """When the digest that counts was computed, by this machine's clock: UTC, ISO 8601."""
    files: int

    @property
    def text(self) -> str:
        """``unchanged since 2026-11-22T10:00:00Z (8 files)``."""
        words = {"runner": "digest by the runner", "digest now": "digest now"}.get(
            self.how, f"unchanged since {self.since}"
        )
        return f"{words} ({self.files} file{'s' if self.files != 1 else ''})"


@dataclass
class Records:
    """What was verified in one root: SHA-256 to looks, each with the time of its digest (s since 1970)."""

    file: Path | None
    """None for a root without an id: nothing is remembered then."""
    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    """SHA-256 to ``SIZE STAMP`` to the time of the digest."""

    @classmethod
    def of(cls, root_id: str) -> Records:
        """Those of the root whose marker says ``root_id``; a file that cannot be read counts as none."""
        if not re.fullmatch(r"[0-9a-f]{32}", root_id):
            return cls(None)
        records = cls(cache_dir("verified") / f"{root_id}.json")
        records.seen = records._read()
        return records

    def since(self, sha256: str, look: Look, days: float) -> float | None:
        """When ``look`` was that of a file with this digest; None when that is unknown, or too long ago."""
        found = self.seen.get(sha256, {}).get(_key(look))
        return found if found is not None and 0 <= time.time() - found < days * DAY else None

    def note(self, sha256: str, look: Look, when: float) -> None:
        """The file that looks so has this digest, which was computed ``when``."""
        self.seen.setdefault(sha256, {})[_key(look)] = when

    def forget(self, sha256: str) -> None:
        """A file of this name was found damaged."""
        self.seen[sha256] = {}

    def save(self) -> None:
        """Write what is known now; what another session wrote meanwhile about other files stays."""
        if self.file is None:
            return
        with locked(f"verified-{self.file.stem}"):
            merged = {**self._read(), **self.seen}
            oldest = time.time() - _FORGOTTEN
            rows = {
                sha256: dict(sorted(looks.items(), key=lambda item: item[1])[-_KEPT:])
                for sha256, looks in merged.items()
                if any(when > oldest for when in looks.values())
            }
            write_json(self.file, {"schema_version": 1, "files": rows})
        self._prune(self.file.parent)

    @staticmethod
    def _prune(folder: Path) -> None:
        """Roots come and go; what was not written for longest is forgotten, which costs a digest at most."""
        if len(names := list(folder.glob("*.json"))) > _ROOTS:
            for file in sorted(names, key=_age)[: len(names) - _ROOTS // 2]:
                file.unlink(missing_ok=True)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            assert self.file is not None  # noqa: S101 - asked by the callers
            data: Any = json.loads(self.file.read_text(encoding="utf-8"))
            return {
                str(sha256): {str(look): float(when) for look, when in looks.items()}
                for sha256, looks in data["files"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _key(look: Look) -> str:
    return f"{look.size} {look.stamp}"


@dataclass
class Voucher:
    """Looks after what vouches for the files of one deploy."""

    store: Store
    days: float
    records: Records
    times: dict[str, float] = field(default_factory=dict)
    """SHA-256 to when the digest that counts was computed."""
    now: set[str] = field(default_factory=set)
    """Those of which it was computed during this deploy."""
    ran: set[str] = field(default_factory=set)
    """Those of which the runner computed it."""

    def unknown(self, looks: Mapping[str, Look], files: Mapping[str, Blob]) -> dict[str, Blob]:
        """Those of ``files`` (paths below the root) that are there, and that nothing vouches for as they look."""
        found = {}
        for name, blob in files.items():
            if name not in looks or looks[name].size != blob.size:
                continue
            when = self.records.since(blob.sha256, looks[name], self.days)
            if when is None:
                found[name] = blob
            else:
                self.times.setdefault(blob.sha256, when)
        return found

    def verify(self, files: Mapping[str, Blob], deadline: Deadline) -> dict[str, str]:
        """Have the digests of ``files`` computed; those that are not what they should be, with what they are."""
        damaged = {}
        answers = self.store.verify(files, deadline)
        for name, blob in files.items():
            digest, look = answers.get(name, ("gone", None))
            if look is not None and digest == blob.sha256:
                self._noted(blob.sha256, look)
            else:
                damaged[name] = digest
                self.records.forget(blob.sha256)
        return damaged

    def doubt(self, sha256: str) -> None:
        """Forget all that vouches for files with this digest: it is computed again where they are looked at next."""
        self.records.forget(sha256)
        self.times.pop(sha256, None)
        self.now.discard(sha256)
        self.ran.discard(sha256)

    def by_runner(self, blob: Blob) -> None:
        """The runner computed the digest of what it ran, and it is the right one."""
        self.ran.add(blob.sha256)
        self.times[blob.sha256] = time.time()

    def uploaded(self, blob: Blob) -> None:
        """The device computed its digest a moment ago."""
        self.now.add(blob.sha256)
        self.times[blob.sha256] = time.time()

    def arranged(self, looks: Mapping[str, Look], files: Mapping[str, Blob]) -> dict[str, Blob]:
        """Files got another link, which changes their looks: by us, a moment after they were vouched for.

        Returns:
            Those of ``files`` that are copies instead of links: nothing vouches for these.
        """
        copies = {}
        for name, blob in files.items():
            if name in looks and blob.sha256 in self.times:
                self.records.note(blob.sha256, looks[name], self.times[blob.sha256])
            else:
                copies[name] = blob
        return copies

    def _noted(self, sha256: str, look: Look) -> None:
        self.now.add(sha256)
        self.times[sha256] = time.time()
        self.records.note(sha256, look, self.times[sha256])

    def vouched(self, files: Mapping[str, Blob]) -> Vouched:
        """What vouches for all of ``files`` together."""
        digests = {blob.sha256 for blob in files.values()}
        oldest = min((self.times[sha256] for sha256 in digests), default=0.0)
        stamp = datetime.datetime.fromtimestamp(oldest, datetime.timezone.utc).isoformat(timespec="seconds")
        how: How = "runner" if digests <= self.ran else "digest now" if digests <= self.now | self.ran else "unchanged"
        return Vouched(how=how, since=stamp.replace("+00:00", "Z"), files=len(files))
