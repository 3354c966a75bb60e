"""Files of known hosts, read with more patience than paramiko's: a marked or damaged line is no reason to give up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry


def read(files: Iterable[Path]) -> tuple[paramiko.HostKeys, set[str]]:
    """The keys on record, and apart from them those that a file marks as revoked (base64).

    A certificate authority's line (``@cert-authority``) is left out: certificates of hosts are not checked here,
    so such a host counts as unknown.
    """
    known = paramiko.HostKeys()
    revoked: set[str] = set()
    entries: list[HostKeyEntry] = []
    for file in files:
        for line in _lines(file):
            words = line.split()
            if words[0] == "@revoked" and len(words) > 3:
                revoked.add(words[3])
            elif (entry := entry_of(line)) is not None:
                entries.append(entry)
    for entry in entries:
        if entry.key is not None and entry.key.get_base64() not in revoked:
            for name in entry.hostnames:
                known.add(name, entry.key.get_name(), entry.key)
    return known, revoked


def _lines(file: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip()


def entry_of(line: str) -> HostKeyEntry | None:
    """A line of such a file; ``None`` for a comment, a marked line, or what cannot be read."""
    if not line.strip() or line.lstrip().startswith(("#", "@")):
        return None
    try:
        entry = HostKeyEntry.from_line(line.strip())
    except Exception:  # noqa: BLE001 - of paramiko's and of cryptography's classes; the line is no key either way
        return None
    return entry if entry is not None and entry.key is not None else None


def is_for(line: str, record: str) -> bool:
    """Whether a line is for ``record``, hashed names included."""
    entry = entry_of(line)
    if entry is None or entry.key is None:
        return False
    keys = paramiko.HostKeys()
    for name in entry.hostnames:
        keys.add(name, entry.key.get_name(), entry.key)
    return keys.lookup(record) is not None
