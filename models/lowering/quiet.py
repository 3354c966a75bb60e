"""Send the output of the exporter's libraries to a log file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from core.paths import cache_dir


def log_path(name: str) -> Path:
    """The log of the export called ``name``; the next export of that name replaces it."""
    return cache_dir("logs") / f"export-{name}.log"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _to_log(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001  # the signature is Python's
    line: str | None = None,
) -> None:
    os.write(2, warnings.formatwarning(message, category, filename, lineno, line).encode(errors="replace"))


def trace(error: BaseException) -> None:
    """Write an error with its traceback to the log; around a `quiet` block that is the standard error stream."""
    os.write(2, "".join(traceback.format_exception(error)).encode(errors="replace"))


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[TextIO]:
    """Send all output of this process, C++ included, to ``log``; the yielded stream still reaches the terminal.

    An error that leaves the block is in the log with its traceback.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    _flush()
    saved = os.dup(1), os.dup(2)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        with (
            warnings.catch_warnings(),
            os.fdopen(os.dup(saved[1]), "w", encoding="utf-8", errors="replace", buffering=1) as terminal,
        ):
            warnings.simplefilter("default")
            warnings.showwarning = _to_log
            yield terminal
    except Exception as error:
        trace(error)
        raise
    finally:
        _flush()
        for number, handle in zip((1, 2), saved, strict=True):
            os.dup2(handle, number)
            os.close(handle)
        os.close(sink)
