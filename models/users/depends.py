"""What an export depends on besides its request: files, folders, variables, packages. Milliseconds, without torch."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from core.files import sha256_bytes, sha256_file

CHANGING = "changed while it was read"
"""Instead of a digest; equal to no file's."""
_SETTLED = 2_000_000_000  # nanoseconds; file systems' clocks may tick as slowly


def looks(path: Path) -> list[int]:
    """Size, inode and times of a file: while they stay the same, so does its content.

    Raises:
        OSError: there is no such file.
    """
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def file(path: Path, before: Sequence[int] = ()) -> dict[str, Any]:
    """What is kept of a file: its digest, and its looks so that the digest need not be computed each time.

    Args:
        before: its looks when it was opened; then a file that has changed since is equal to none.
    """
    now = looks(path)
    sha256 = sha256_file(path)
    if now != looks(path) or (before and list(before) != now):
        return {"sha256": CHANGING, "looks": []}
    settled = time.time_ns() - max(now[2], now[3]) > _SETTLED
    return {"sha256": sha256, "looks": now if settled else []}


def names(folder: Path) -> str:
    """Digest of the names in a folder; hidden files and Python's own do not count."""
    kept = sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__pycache__")))
    return sha256_bytes("\0".join(kept).encode(errors="surrogateescape"))


def variable(name: str) -> str:
    """Digest of an environment variable's value, which may be secret; empty if it is not set."""
    value = os.environ.get(name)
    return "" if value is None else sha256_bytes(value.encode(errors="surrogateescape"))


@functools.cache
def version(package: str) -> str:
    """A package's version, without importing it; ``absent`` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def changed(depends: Mapping[str, Mapping[str, Any]]) -> str:
    """The first dependency that is not what it was, in words; empty if all are the same.

    Args:
        depends: as `models.users.watching` notes it: ``files``, ``folders``, ``variables`` and ``packages`` by name.
    """
    return next(filter(None, _changes(depends)), "")


def _changes(depends: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for package, was in depends.get("packages", {}).items():
        if was != version(package):
            yield f"{package} is now {version(package)}, it was {was}"
    for name, was in depends.get("variables", {}).items():
        if was != variable(name):
            yield f"the environment variable {name} has changed"
    for folder, was in depends.get("folders", {}).items():
        if not Path(folder).is_dir() or names(Path(folder)) != was:
            yield f"the folder {folder} has other files"
    for path, was in depends.get("files", {}).items():
        yield _file_changed(Path(path), was)


def _file_changed(path: Path, was: Mapping[str, Any]) -> str:
    if not was["sha256"]:
        return f"{path} has appeared" if path.exists() else ""
    if not path.is_file():
        return f"{path} is missing"
    return "" if was["looks"] == looks(path) or sha256_file(path) == was["sha256"] else f"{path} has changed"
