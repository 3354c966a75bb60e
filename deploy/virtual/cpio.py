"""Write and read cpio archives in the ``newc`` format, which the Linux kernel unpacks as initramfs.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. The same entries always give
the same bytes: everything belongs to root and carries no time.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"
_FIELDS = 13


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
    fields = (
        number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0,
    )  # fmt: skip
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


def read(raw: bytes) -> list[Entry]:
    """The entries of an archive, or of several behind one another.

    Raises:
        ValueError: it is not one, or is cut short.
    """
    entries: list[Entry] = []
    at = 0
    while at < len(raw):
        if raw[at : at + 4] == bytes(4):  # padding between archives
            at += 4
            continue
        head = raw[at : at + 6 + 8 * _FIELDS]
        if head[:6] != _MAGIC or len(head) < 6 + 8 * _FIELDS:
            raise ValueError(f"no cpio header at byte {at}")
        values = [int(head[6 + 8 * index : 14 + 8 * index], 16) for index in range(_FIELDS)]
        mode, size, major, minor, length = values[1], values[6], values[9], values[10], values[11]
        begin = at + len(head)
        data = begin + length + -(len(head) + length) % 4
        if data + size > len(raw):
            raise ValueError("the archive is cut short")
        path = raw[begin : begin + length - 1].decode()
        if path != _TRAILER:
            entries.append(Entry(path, mode, raw[data : data + size], (major, minor)))
        at = data + size + -size % 4
    return entries
