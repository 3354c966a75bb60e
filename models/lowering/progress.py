"""What exports are doing: a live line each on a terminal; elsewhere a line at the beginning, and now and then.

An estimate is what the last export of the same name took (`core.console.live`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from core.console import live
from core.console.live import Step
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
    """The stages of one export.

    Args:
        name: the export's.
        stream: the terminal.
    """

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
