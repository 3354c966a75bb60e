"""Folders of the cache whose files must stay as they were made: compilers, emulators, images.

When a folder is made, a seal is put into it: every file's digest, and its size, times, inode and mode. When something
of it is run, the latter are compared, which takes microseconds a file; a file that differs is read again, and its
digest decides. So a folder that was copied or touched passes, and one with a changed byte does not.

It is a guard against accidents and against programs that write into these folders by mistake. An attacker who can write
into the cache can write another seal, too.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core import console
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json

SEAL = ".slipway-seal.json"

_FORMAT = 1

_SEEN: dict[Path, tuple[int, int]] = {}
"""Folders that this process has checked already, with the seal's own inode and time."""


def _listing(folder: Path) -> dict[str, list[int]]:
    """What of each file and link below ``folder``, but of the seal, changes when it is written to or copied."""
    found = {}
    waiting = [("", os.fspath(folder))]
    while waiting:
        inside, path = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = inside + entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((f"{name}/", entry.path))
                elif name != SEAL:
                    state = entry.stat(follow_symlinks=False)
                    found[name] = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_mode]
    return found


def _summary(listing: Mapping[str, list[int]]) -> str:
    lines = (f"{name}\0{listing[name]}" for name in sorted(listing))
    return sha256_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))


def _content(file: Path, mode: int) -> str:
    """The digest of a file, or of the path that a link leads to; with whether it may be run."""
    if stat.S_ISLNK(mode):
        return f"link {os.fspath(file.readlink())}"
    return f"{sha256_file(file)} {'x' if mode & stat.S_IXUSR else '-'}" if stat.S_ISREG(mode) else "special"


def seal(folder: Path) -> None:
    """Put a seal into ``folder`` for all that is in it now. It may be renamed afterwards."""
    listing = _listing(folder)
    _write(folder, listing, {name: _content(folder / name, facts[4]) for name, facts in listing.items()})


def _write(folder: Path, listing: Mapping[str, list[int]], digests: Mapping[str, str]) -> None:
    files = {name: [digests[name], listing[name]] for name in sorted(listing)}
    write_json(folder / SEAL, {"format": _FORMAT, "summary": _summary(listing), "files": files})


def _read(folder: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        return found if found["format"] == _FORMAT and isinstance(found["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _quick(folder: Path) -> str:
    """The summary at the beginning of a seal, without reading its list of files; empty if it is not a seal."""
    try:
        with (folder / SEAL).open(encoding="utf-8") as file:
            head = file.read(200)
        begin = head.index('"summary": "') + len('"summary": "')
        return head[begin : begin + 64]
    except (OSError, ValueError):
        return ""


def damage(folder: Path) -> list[str]:
    """Which files of the sealed ``folder`` are not as they were: changed, missing or added; sorted."""
    listing = _listing(folder)
    if _quick(folder) == _summary(listing):
        return []
    if (known := _read(folder)) is None:
        return [SEAL]
    files: Mapping[str, Any] = known["files"]
    bad = sorted(files.keys() ^ listing.keys())
    digests: dict[str, str] = {}
    for name in sorted(files.keys() & listing.keys()):
        digest, facts = files[name]
        digests[name] = digest if facts == listing[name] else _content(folder / name, listing[name][4])
        if digests[name] != digest:
            bad.append(name)
    if not bad:
        _write(folder, listing, digests)  # it was copied or touched: makes the next check fast again
    return sorted(bad)


def whole(folder: Path) -> bool:
    """Whether the sealed ``folder`` is as it was made; once it is, this process does not look again."""
    try:
        found = (folder / SEAL).stat()
    except OSError:
        return False
    if _SEEN.get(folder) == (found.st_ino, found.st_mtime_ns):
        return True
    if damage(folder):
        return False
    found = (folder / SEAL).stat()
    _SEEN[folder] = (found.st_ino, found.st_mtime_ns)
    return True


def made(folder: Path, lock: str, make: Callable[[Path], None]) -> Path:
    """The sealed ``folder``, made if it is missing or something has changed a file of it.

    Args:
        lock: the name of a lock, under which two processes take turns.
        make: fills an empty folder, which takes the place of the old one when it is complete.
    """
    if not whole(folder):
        with locked(lock):
            if not whole(folder):
                if (folder / SEAL).is_file() and (changed := damage(folder)):
                    some = ", ".join(changed[:3])
                    console.note(f"making {folder.name} again: something has changed {some} in the cache")
                with new_folder(folder) as new:
                    make(new)
                    seal(new)
    return folder
