"""What exports are doing: a live line each on a terminal; elsewhere a line at the beginning, and now and then.

An estimate is what the last export of the same name took (`core.console.live`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from core.console import live
from core.console.live import Step
from core.paths import cache_dir
from core.plain import plain

OFTEN = 20.0
"""Seconds between two lines of one export where lines stay."""


class Display:
    """A stream that shows what runs.

    Args:
        stream: stderr, or what reaches the terminal while that is redirected.
        total: how many exports are to be done; 0 or 1: they are not counted.
    """

    def __init__(self, stream: TextIO, total: int = 0) -> None:
        self._stream = stream
        self._steps: dict[str, Step] = {}
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()
        self._all = self._begin("exporting") if total > 1 else None
        if self._all is not None:
            self._all.count(0, total)

    def _begin(self, text: str) -> Step:
        return live.begin(text, announce=False, stream=None if self._stream is sys.stderr else self._stream)

    def show(self, name: str, text: str, expected: float | None, begun: float, *, stage: bool = True) -> None:
        """Say what ``name`` does now.

        Args:
            expected: seconds that it takes altogether, as far as the last time says.
            begun: on the monotonic clock.
            stage: it is a new stage, not a detail of the one before.
        """
        with self._lock:
            step = self._steps.get(name) or self._steps.setdefault(name, self._begin(name))
            step.begun, step.before = begun, expected
            step.now(text)
            if step.live or not (stage or name in self._said):
                return
            first, now = name not in self._said, time.monotonic()
            if first or now - self._said[name] > OFTEN:
                self._said[name] = now
                self._write(plain(step.words if first else f"{step.words} ({live.far(step, None)})") + "\n")

    def done(self, name: str) -> None:
        """It does not run any more."""
        with self._lock:
            if (step := self._steps.pop(name, None)) is not None:
                step.end(ok=False)
            if self._all is not None:
                self._all.one()

    def say(self, text: str) -> None:
        """Text that stays, above the lines."""
        with self._lock, live.paused():
            self._write(text)

    def close(self) -> None:
        """Remove the lines."""
        for step in [*self._steps.values(), *filter(None, [self._all])]:
            step.end()
        self._steps.clear()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


listener: list[Callable[[str, str, float | None, bool], None]] = []
"""What hears of stages instead of the terminal: name, text, seconds expected altogether, whether a stage begins."""


class Stages:
    """The stages of the export ``name``, shown on the terminal ``stream``."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._display = None if listener else Display(stream)
        self._start = time.monotonic()
        self._expected = live.recall(f"export {name}")
        self._stage = ""

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._start

    def show(self, stage: str) -> None:
        """A stage begins."""
        self._stage = stage
        _active[:] = [self]
        self._say(stage, True)

    def detail(self, text: str) -> None:
        """What the stage works on now."""
        self._say(f"{self._stage}: {text}", False)

    def _say(self, text: str, stage: bool) -> None:
        if self._display is None:
            listener[0](self._name, text, self._expected, stage)
        else:
            self._display.show(self._name, text, self._expected, self._start, stage=stage)

    def done(self) -> None:
        """The export has succeeded: its time is the next one's estimate."""
        live.remember(f"export {self._name}", self.seconds)

    def close(self) -> None:
        """Remove the line."""
        _active.clear()
        if self._display is not None:
            self._display.close()


_active: list[Stages] = []


def at(text: str) -> None:
    """Say what the stage that runs works on now: ``calibrating with sample 3 of 8``."""
    for one in _active:
        one.detail(text)


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
