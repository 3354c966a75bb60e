"""Files that are either complete or absent: temporary name, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import HostError, SlipwayError, UsageError

_CHUNK = 1 << 20


def sha256_file(path: Path, most: int = sys.maxsize) -> str:
    """The SHA-256 of the file, or of its first ``most`` bytes, as 64 lower-case hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(min(_CHUNK, most)):
            digest.update(chunk)
            most -= len(chunk)
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


_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REFUSED = (*_CLOSED, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST)
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.EFBIG)


def of_the_machine(error: OSError, doing: str = "") -> SlipwayError | None:
    """What a full disk, a folder of others' or a limit of this machine did, as an error; ``None``: it was another."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    named = f" {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
    during = f" while {doing}" if doing else ""
    if error.errno in _FULL:
        return HostError(
            f"No space left on this machine{during or (f' for{named}' if named else '')}.",
            "the disk is full, or your quota, or the number of files that it may hold",
            "free some space (./inv clean --cache removes Slipway's own cache), then the same command again",
        )
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(
            "A name is too long for this machine's file system.", f"{reason}:{named[:200]}", "a shorter one"
        )
    if error.errno in _REFUSED:
        return HostError(
            f"This machine refuses{named or ' a file'}{during}: {reason}.",
            "the folder is read-only, belongs to another user, or a file has the name that a folder needs",
            "set HOME, SLIPWAY_CACHE and SLIPWAY_DIST to folders that you may write to",
        )
    if error.errno in _LIMITS:
        return HostError(
            f"This machine refuses{named or ' a request'}{during}: {reason}.",
            "a limit was reached",
            "end other programs, or raise the limit (ulimit -a shows all); then the same command again",
        )
    return None


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn a full or read-only disk of this machine into a `HostError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (*_FULL, *_CLOSED) and (found := of_the_machine(error, doing)):
            raise found from error
        raise


def _streamed(path: Path, data: bytes) -> bool:
    """Whether ``path`` takes bytes as they come (``/dev/null``, ``/dev/stdout``, a pipe), and has them now.

    Raises:
        HostError: what is there may not be replaced: a folder, a disk, a socket, another user's link.
    """
    try:
        own = path.lstat()
    except OSError:
        return False  # there is nothing yet; else making the file says why it cannot be
    if stat.S_ISREG(own.st_mode):
        return False
    ours = own.st_uid in (0, getattr(os, "geteuid", int)())
    if stat.S_ISLNK(own.st_mode) and ours and not path.exists():
        return False
    there = path.stat() if ours or not stat.S_ISLNK(own.st_mode) else own
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, os.fstat(stream)):
                sys.stdout.flush()
                with os.fdopen(os.dup(stream), "wb") as file:
                    file.write(data)
                return True
    if stat.S_ISCHR(there.st_mode) or stat.S_ISFIFO(there.st_mode):
        path.write_bytes(data)
        return True
    if not stat.S_ISREG(there.st_mode):
        raise HostError(
            f"{path} cannot be written: it is no file.",
            "a folder, a disk, a socket, or another user's link has that name",
            "name a file there, or a new name",
        )
    return False


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write ``data`` under a temporary name beside ``path``, fsync, rename.

    A link stays, and what it leads to is replaced; a pipe or a device such as ``/dev/null`` gets the bytes.

    Raises:
        HostError: the disk is full, not allowed, or the name is that of a folder, a disk or another user's link.
    """
    raw = data.encode() if isinstance(data, str) else data
    with disk_errors(f"writing {path.name}"):
        if _streamed(path, raw):
            return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
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
    `locked` around it. What a killed one left of it is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(f"writing {path.name}"):
        for kind in ("tmp", "old"):
            for left in path.parent.glob(f".{glob.escape(path.name)}.????????.{kind}"):
                shutil.rmtree(left, ignore_errors=True)
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


def locked(name: str, waiting: str = "") -> contextlib.AbstractContextManager[None]:
    """Hold the cache-wide lock ``name``: two ``./inv`` at once take turns; a dead holder frees it.

    Args:
        waiting: printed after a second if another process holds it, with that process and its start.
    """
    from core.files import locks
    from core.paths import cache_dir

    return locks.held(cache_dir("locks") / f"{name}.lock", waiting)
