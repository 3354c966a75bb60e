"""Write cpio archives in the ``newc`` format, which the Linux kernel unpacks as initramfs.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. The same entries always give
the same bytes: everything belongs to root and carries no time.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """One file, folder, link or device node."""

    path: str
    """Relative, POSIX, no ``.`` or ``..``."""
    mode: int
    """Type and permission bits, as in ``st_mode``."""
    data: bytes = b""
    """A file's contents or a link's target."""
    device: tuple[int, int] = (0, 0)
    """Major and minor number of a device node."""


def folder(path: str, mode: int = 0o755) -> Entry:
    """A folder."""
    return Entry(path, stat.S_IFDIR | mode)


def file(path: str, data: bytes | str, mode: int = 0o644) -> Entry:
    """A regular file."""
    return Entry(path, stat.S_IFREG | mode, data.encode() if isinstance(data, str) else data)


def link(path: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, major: int, minor: int, mode: int = 0o600) -> Entry:
    """A character device node."""
    return Entry(path, stat.S_IFCHR | mode, b"", (major, minor))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _record(entry: Entry, number: int) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    head = _MAGIC + b"".join(b"%08X" % field for field in fields)
    return _padded(head + name) + _padded(entry.data)


def _with_parents(entries: Iterable[Entry]) -> Iterator[Entry]:
    given = {entry.path: entry for entry in entries}
    for path in list(given):
        parts = path.split("/")
        if path.startswith("/") or not all(parts) or {".", ".."} & set(parts):
            raise ValueError(f"{path!r} is not a plain relative path")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            given.setdefault(parent, folder(parent))
    # A folder's path sorts before all paths below it.
    return iter([given[path] for path in sorted(given, key=lambda path: path.split("/"))])


def write(entries: Iterable[Entry]) -> bytes:
    """The archive; folders that are only implied by paths are added, later entries of a path win."""
    parts = [_record(entry, number) for number, entry in enumerate(_with_parents(entries), 1)]
    parts.append(_record(Entry(_TRAILER, 0), 0))
    raw = b"".join(parts)
    return raw + bytes(-len(raw) % 512)
