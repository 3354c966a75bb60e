"""The last resort: turn an unforeseen exception into an error with Slipway's three parts.

What this machine refuses (a full disk, a folder that cannot be made, memory) is a `HostError`; everything else is a
defect of Slipway, whose traceback goes to a file, for the person who fixes it.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from core.errors import DefectError, HostError, SlipwayError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST)
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.EFBIG)


def _of_the_machine(error: OSError) -> SlipwayError | None:
    reason = os.strerror(error.errno) if error.errno else str(error)
    named = f" {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
    if error.errno in _FULL:
        return HostError(
            f"No space left on this machine{f' for{named}' if named else ''}.",
            "the disk is full, or your quota, or the number of files that it may hold",
            "free some space (./inv clean --cache removes Slipway's own cache), then the same command again",
        )
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(
            "A name is too long for this machine's file system.", f"{reason}:{named[:200]}", "a shorter one"
        )
    if error.errno in _REFUSED:
        return HostError(
            f"This machine refuses{named or ' a file'}: {reason}.",
            "the folder is read-only, belongs to another user, or a file has the name that a folder needs",
            "set HOME, SLIPWAY_CACHE and SLIPWAY_DIST to folders that you may write to",
        )
    if error.errno in _LIMITS:
        return HostError(
            f"This machine refuses{named or ' a request'}: {reason}.",
            "a limit was reached",
            "end other programs, or raise the limit (ulimit -a shows all); then the same command again",
        )
    return None


def _kept(error: BaseException) -> str:
    """Path of the file with the traceback; empty if it cannot be written."""
    text = "".join(traceback.format_exception(error))
    name = f"defect-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    for folder in (_logs, lambda: Path(tempfile.mkdtemp(prefix="slipway-"))):
        try:
            file = folder() / name
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
        except (OSError, SlipwayError):
            continue
        return str(file)
    return ""


def _logs() -> Path:
    from core.paths import cache_dir

    return cache_dir("logs")


def understood(error: BaseException) -> SlipwayError:
    """``error`` as one of Slipway's own; a `DefectError` if neither the machine nor the user caused it."""
    if isinstance(error, SlipwayError):
        return error
    if isinstance(error, OSError) and (found := _of_the_machine(error)):
        return found
    if isinstance(error, MemoryError):
        return HostError(
            "This machine has too little free memory.", "", "end other programs, then the same command again"
        )
    file = _kept(error)
    traceback_note = f"the traceback is in {file}" if file else "its traceback could not be written to a file"
    last = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return DefectError(f"This is a defect of Slipway: {last}", traceback_note, "report it with that file")


def interrupted() -> None:
    """After a Ctrl-C: nothing is printed of objects that it left half made, and that cannot end, such as paramiko's."""
    sys.unraisablehook = lambda _unraisable: None
