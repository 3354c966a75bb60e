"""Garbage collection of a device's store: remove old files and those above the size limit, never current ones.

The device lists, this side decides (`plan` is a function of the listing alone), the device removes. Ages are measured
by the device's own clock; if it jumps, the worst consequence is an unnecessary upload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from deploy.store.store import Store
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import natural

DAY = 86_400
_FILE = re.compile(r"of ([0-9a-f]{64}) ((?:bundles|programs)/[^/]+/.+)")


@dataclass(frozen=True)
class Entry:
    """A blob or a folder of the store."""

    name: str
    size: int
    used: int
    """When it was last used, by the device's clock (s)."""


@dataclass
class Listing:
    """The store as the device lists it."""

    now: int = 0
    blobs: dict[str, Entry] = field(default_factory=dict)
    bundles: dict[str, Entry] = field(default_factory=dict)
    programs: dict[str, Entry] = field(default_factory=dict)
    weights: dict[str, Entry] = field(default_factory=dict)
    """Packed weights, by the program's digest, a dot, target and engine; and what a killed runner left of them."""
    files: dict[str, str] = field(default_factory=dict)
    """Path of each file of a bundle, or of a program with its inputs, to its digest."""
    links: dict[str, str] = field(default_factory=dict)
    """``current/<key>`` and ``previous/<key>`` to a bundle's digest."""


def parse(lines: Iterable[str]) -> Listing:
    """The store in the output of `listing.sh`."""
    found = Listing()
    for line in lines:
        words = line.split(" ")
        if words[0] == "now" and (now := natural(words[-1])) is not None:
            found.now = now
        elif words[0] == "link" and len(words) == 3:
            found.links[words[1]] = words[2].rpartition("/")[2]
        elif match := _FILE.fullmatch(line):
            found.files[match[2]] = match[1]
        elif words[0] in {"file", "folder"} and len(words) == 5:
            kind, _, name = words[4].partition("/")
            size, used = natural(words[1]), natural(words[2])
            if size is None or used is None:
                continue
            entry = Entry(words[4], size, used)
            table = {"store": found.blobs, "bundles": found.bundles, "programs": found.programs,
                     "weights": found.weights}.get(kind)  # fmt: skip
            if table is not None:
                table[name] = entry
    return found


def plan(listing: Listing, *, max_bytes: float, max_days: float, in_use: Collection[str] = ()) -> list[str]:
    """Paths below the root to remove.

    Args:
        max_bytes: limit of all files together; the packed weights go first, then the least
            recently used, programs before bundles.
        max_days: days without use after which files go.
        in_use: digests of blobs and bundles that stay at any age.
    """

    linked = {*listing.links.values(), *in_use}
    gone: dict[str, Entry] = {}

    def lru(*tables: dict[str, Entry]) -> list[tuple[str, Entry]]:
        return [row for table in tables for row in sorted(table.items(), key=lambda row: row[1].used)]

    def old(entry: Entry) -> bool:
        return listing.now - entry.used > max_days * DAY

    def size() -> int:
        tables = (listing.blobs, listing.weights)
        return sum(entry.size for table in tables for entry in table.values() if entry.name not in gone)

    def unused() -> list[Entry]:
        """Blobs that no folder has which stays."""
        held = {sha256 for path, sha256 in listing.files.items() if "/".join(path.split("/")[:2]) not in gone}
        return [blob for sha256, blob in lru(listing.blobs) if sha256 not in held | set(in_use)]

    def drop(entries: Iterable[Entry], always: Callable[[Entry], bool] = lambda _: False) -> None:
        for entry in entries:
            if always(entry) or size() > max_bytes:
                gone[entry.name] = entry

    loose = [entry for name, entry in lru(listing.programs, listing.bundles) if name not in linked]
    gone.update((entry.name, entry) for entry in loose if old(entry))
    # Nobody needs packed weights to run, and they are made again by themselves: they go first.
    orphans = {name for name in listing.weights if name.endswith(".tmp") or _model(name) not in listing.blobs}
    packed = lru(listing.weights)
    gone.update((entry.name, entry) for name, entry in packed if name in orphans)
    drop(entry for name, entry in packed if name not in orphans and _model(name) not in in_use)
    drop(unused(), old)
    for entry in loose:
        if entry.name not in gone and size() > max_bytes:
            before = {blob.name for blob in unused()}
            gone[entry.name] = entry
            gone.update((blob.name, blob) for blob in unused() if blob.name not in before)
    gone.update((entry.name, entry) for name, entry in packed if f"store/{_model(name)}" in gone)
    return list(gone)


def _model(name: str) -> str:
    """The digest of the program whose packed weights a file has."""
    return name.partition(".")[0]


def listed(store: Store, deadline: Deadline) -> Listing:
    """The store as it is now."""
    return parse(store.command("listing", (), deadline, "listing the store").text.splitlines())


@dataclass(frozen=True)
class Collected:
    """The outcome of a collection."""

    removed: tuple[str, ...]
    bytes: int
    """Freed, as far as files of the store go."""
    left_files: int
    left_bytes: int


def collect(
    store: Store, deadline: Deadline, *, max_bytes: float, max_days: float, in_use: Collection[str] = ()
) -> Collected:
    """List, decide, remove; the session holds the lock. See `plan` for the arguments."""
    listing = listed(store, deadline)
    names = plan(listing, max_bytes=max_bytes, max_days=max_days, in_use=in_use)
    # Folders go before the blobs that only they use: after an interruption every folder is still complete.
    names.sort(key=lambda name: name.startswith("store/"))
    store.discard(names, deadline)
    gone = [blob.size for blob in listing.blobs.values() if blob.name in set(names)]
    left = [blob.size for blob in listing.blobs.values() if blob.name not in set(names)]
    return Collected(tuple(names), sum(gone), len(left), sum(left))
