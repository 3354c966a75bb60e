"""Files that are either complete or absent: temporary name, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import HostError

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """The file's SHA-256 as 64 lower-case hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of ``data`` as hex."""
    return hashlib.sha256(data).hexdigest()


def fsync_dir(path: Path) -> None:
    """Make a rename in this folder durable."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn a full or read-only disk of this machine into a `HostError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostError(
                f"No space left on this machine while {doing}.",
                "the disk or your quota is full",
                "free some space (./inv clean --cache removes Slipway's own cache), then the same command again",
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise HostError(
                f"Not allowed to write while {doing}: {error.filename or error}.",
                "the folder is read-only or belongs to another user",
                "set SLIPWAY_CACHE and SLIPWAY_DIST to folders you own",
            ) from error
        raise


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write ``data`` under a temporary name beside ``path``, fsync, rename."""
    raw = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(f"writing {path.name}"):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
            fsync_dir(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def keep_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Make ``path``, a file of the cache, contain exactly this text; write nothing if it already does."""
    try:
        same = path.read_bytes() == text.encode() and path.stat().st_mode & 0o777 == mode
    except OSError:
        same = False
    if not same:
        write_atomic(path, text, mode)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented JSON with a final newline."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder under a temporary name; it gets its own name only when the block ends well.

    An existing folder is replaced. Two processes may not do this to the same path at once: hold
    `locked` around it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(f"writing {path.name}"):
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        temporary.chmod(0o755)
        try:
            yield temporary
            old = None
            if path.exists():
                old = temporary.with_suffix(".old")
                path.rename(old)
            temporary.rename(path)
            if old is not None:
                shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(name: str, waiting: str = "", *, shared: bool = False) -> Iterator[None]:
    """Hold the cache-wide lock ``name``: two ``./inv`` at once take turns; a dead holder frees it.

    Args:
        waiting: printed after a second if another process holds it, with that process and its start.
        shared: hold it together with others that share it; a process that holds it alone waits for all of them.
    """
    from core import locks
    from core.paths import cache_dir

    with locks.held(cache_dir("locks") / f"{name}.lock", waiting, shared=shared):
        yield
