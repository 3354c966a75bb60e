"""Evidence for the bytes of a file on a device: a digest of now, or an earlier one without any change since.

A digest of every file before every run would cost more than a small run itself. So it is computed when a file is
uploaded, and the file's state right after is recorded on this machine: its size, its inode, and the times of the last
change to its bytes and to itself. While all of these stay the same, the digest is valid; a program on the device can
set the last of them back only by changing the device's clock. As soon as one differs, and after some days in any case
(a failing disk changes none of these), the digest is computed again.

The records are kept by the id in the root's marker, so that another root, or a new one, starts without records.
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

from core.files import locked, write_json
from core.paths import cache_dir
from core.strict_json import Frozen
from deploy.store.store import Blob, Look, Store
from deploy.transport.deadline import Deadline

DAY = 86_400.0
_KEPT = 4
"""Looks of one file that are remembered: links to it are copies on a file system without hard links."""
_FORGOTTEN = 400 * DAY

How = Literal["runner", "digest now", "unchanged"]


class Vouched(Frozen):
    """The evidence for a program's files, or a bundle's: the weakest of all of them."""

    how: How
    """``runner``: the runner computed the digest of the bytes that it ran; ``digest now``: the device computed it
    during this deploy; ``unchanged``: it was computed earlier, and nothing changed since."""
    since: str = ""
    """When this digest was computed, by this machine's clock: UTC, ISO 8601."""
    files: int

    @property
    def text(self) -> str:
        """``unchanged since 2026-11-22T10:00:00Z (8 files)``."""
        words = {"runner": "digest by the runner", "unchanged": f"unchanged since {self.since}"}.get(self.how, self.how)
        return f"{words} ({self.files} file{'s' if self.files != 1 else ''})"


@dataclass
class Records:
    """The verified files of one root: SHA-256 to looks, each with the time of its digest (s since 1970)."""

    file: Path | None
    """``None`` for a root without an id: nothing is remembered then."""
    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    """SHA-256 to ``SIZE STAMP`` to the time of the digest."""

    @classmethod
    def of(cls, root_id: str) -> Records:
        """The records of the root with the id ``root_id``; empty if their file cannot be read."""
        if not re.fullmatch(r"[0-9a-f]{32}", root_id):
            return cls(None)
        file = cache_dir("verified") / f"{root_id}.json"
        return cls(file, _read(file))

    def since(self, sha256: str, look: Look, days: float) -> float | None:
        """When a file with this digest had ``look``; ``None`` if unknown or too long ago."""
        found = self.seen.get(sha256, {}).get(_key(look))
        return found if found is not None and 0 <= time.time() - found < days * DAY else None

    def note(self, sha256: str, look: Look, when: float) -> None:
        """Record that a file with this look has this digest, which was computed ``when``."""
        self.seen.setdefault(sha256, {})[_key(look)] = when

    def forget(self, sha256: str) -> None:
        """Forget a digest whose file was found damaged."""
        self.seen[sha256] = {}

    def save(self) -> None:
        """Write the records; those that another session wrote meanwhile about other files stay."""
        if self.file is None:
            return
        with locked(f"verified-{self.file.stem}"):
            merged = {**_read(self.file), **self.seen}
            oldest = time.time() - _FORGOTTEN
            rows = {
                sha256: dict(sorted(looks.items(), key=lambda item: item[1])[-_KEPT:])
                for sha256, looks in merged.items()
                if any(when > oldest for when in looks.values())
            }
            write_json(self.file, {"schema_version": 1, "files": rows})


def _read(file: Path) -> dict[str, dict[str, float]]:
    try:
        data: Any = json.loads(file.read_text(encoding="utf-8"))
        return {
            str(sha256): {str(look): float(when) for look, when in looks.items()}
            for sha256, looks in data["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _key(look: Look) -> str:
    return f"{look.size} {look.stamp}"


@dataclass
class Voucher:
    """Collects the evidence for the files of one deploy."""

    store: Store
    days: float
    records: Records
    times: dict[str, float] = field(default_factory=dict)
    """SHA-256 to the time of its digest."""
    now: set[str] = field(default_factory=set)
    """Digests that the device computed during this deploy."""
    ran: set[str] = field(default_factory=set)
    """Digests that the runner computed."""

    def unknown(self, looks: Mapping[str, Look], files: Mapping[str, Blob]) -> dict[str, Blob]:
        """Those of ``files`` (paths below the root) that exist and have no valid evidence."""
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
        """Have the digests of ``files`` computed; return the wrong ones, with their digests."""
        damaged = {}
        answers = self.store.verify(files, deadline)
        for name, blob in files.items():
            digest, look = answers.get(name, ("gone", None))
            if look is not None and digest == blob.sha256:
                self.by_device(blob)
                self.records.note(blob.sha256, look, self.times[blob.sha256])
            else:
                damaged[name] = digest
                self.records.forget(blob.sha256)
        return damaged

    def by_runner(self, blob: Blob) -> None:
        """Record that the runner read the right bytes."""
        self.ran.add(blob.sha256)
        self.times[blob.sha256] = time.time()

    def by_device(self, blob: Blob) -> None:
        """Record that the device has just computed the digest."""
        self.now.add(blob.sha256)
        self.times[blob.sha256] = time.time()

    def arranged(self, looks: Mapping[str, Look], files: Mapping[str, Blob]) -> dict[str, Blob]:
        """Record that our new link to a file, made right after its check, changed its look; return the copies.

        There is no evidence for these yet.
        """
        copies = {}
        for name, blob in files.items():
            if name in looks and blob.sha256 in self.times:
                self.records.note(blob.sha256, looks[name], self.times[blob.sha256])
            else:
                copies[name] = blob
        return copies

    def vouched(self, files: Mapping[str, Blob]) -> Vouched:
        """The evidence for all of ``files`` together."""
        digests = {blob.sha256 for blob in files.values()}
        oldest = min((self.times[sha256] for sha256 in digests), default=0.0)
        stamp = datetime.datetime.fromtimestamp(oldest, datetime.timezone.utc).isoformat(timespec="seconds")
        how: How = "runner" if digests <= self.ran else "digest now" if digests <= self.now | self.ran else "unchanged"
        return Vouched(how=how, since=stamp.replace("+00:00", "Z"), files=len(files))
