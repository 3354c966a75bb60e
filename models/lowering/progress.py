"""What an export is doing: one line that ticks on a terminal; elsewhere a line at its beginning, and now and then.

An estimate comes from the last export of the same name, which leaves its stages' times in the cache.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from core.console import live
from core.files import write_atomic
from core.paths import cache_dir
from core.plain import plain

TICK = 1.0
"""Seconds between two looks at the clock on a terminal."""
OFTEN = 20.0
"""Seconds between two lines of one export where lines stay."""


@dataclass
class Running:
    """An export that is on the line."""

    text: str
    begun: float
    """On the monotonic clock."""
    expected: float | None = None
    """Seconds that it takes altogether, as far as the last time says."""
    said: float = float("-inf")

    def line(self, name: str) -> str:
        """``mlp-qs8: lowering (12 s of about 40 s)``."""
        passed = time.monotonic() - self.begun
        about = ""
        if self.expected:
            about = f" of about {self.expected:.0f} s" if passed < self.expected else ", longer than the last time"
        return f"{name}: {self.text} ({passed:.0f} s{about})"


@dataclass
class Display:
    """A stream that shows what runs: a line that is rewritten on a terminal; elsewhere lines that stay."""

    stream: TextIO
    summary: Callable[[], str] = str
    """What stands before several exports that run together: ``2 of 7 done``."""
    _running: dict[str, Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)
    _ticker: threading.Thread | None = None
    _shown: bool = False

    def __post_init__(self) -> None:
        self._live = self.stream.isatty()
        # A first deploy has one line for all that it does. Another stream is that of an export in this process.
        whole = self._live and live.is_first() and self.stream is sys.stderr
        self._step = live.begin("", announce=False) if whole else None

    def show(self, name: str, text: str, expected: float | None, begun: float, *, stage: bool = True) -> None:
        """Say what ``name`` does now.

        Args:
            stage: it is a new stage, not a detail of the one before.
        """
        with self._lock:
            one = self._running.setdefault(name, Running(text, begun))
            one.text, one.expected = text, expected
            self._draw(name if stage else "")
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, daemon=True, name="progress")
            self._ticker.start()

    def done(self, name: str) -> None:
        """It does not run any more."""
        with self._lock:
            self._running.pop(name, None)
            self._draw()

    def say(self, text: str) -> None:
        """Text that stays, above the line."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._clear()
            self.stream.write(text)
            self.stream.flush()
            self._draw()

    def close(self) -> None:
        """Remove the line, and end the thread."""
        self._end.set()
        if self._ticker is not None:
            self._ticker.join()
        with self._lock:
            self._clear()
        if self._step is not None:
            self._step.end()

    def _tick(self) -> None:
        while not self._end.wait(TICK):
            with self._lock:
                self._draw()

    def _clear(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._shown:
                self.stream.write("\r\x1b[K")
                self.stream.flush()
                self._shown = False

    def _width(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(self.stream.fileno()).columns
        return 80

    def _draw(self, fresh: str = "") -> None:
        """Show what runs.

        Args:
            fresh: a new stage of this one has begun.
        """
        with contextlib.suppress(OSError, ValueError):
            if not self._live:
                for name, one in self._running.items():
                    new = fresh == name and one.said == float("-inf")
                    if new or time.monotonic() - one.said > OFTEN:
                        one.said = time.monotonic()
                        self.stream.write(plain(one.line(name) if not new else f"{name}: {one.text}") + "\n")
                        self.stream.flush()
                return
            self._clear()
            if self._step is not None:
                self._step.text = "; ".join(f"{name}: {one.text}" for name, one in self._running.items())
            elif self._running:
                parts = [one.line(name) for name, one in self._running.items()]
                text = plain("; ".join([*filter(None, [self.summary()]), *parts]))
                width = self._width() - 1
                self.stream.write(text if len(text) <= width else text[: width - 1] + "…")
                self.stream.flush()
                self._shown = True


def _file(name: str) -> Path:
    return cache_dir("estimates") / f"{name}.json"


def last_time(name: str) -> dict[str, float]:
    """Stage -> seconds of the last export of this name; empty if there was none."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        return {str(stage): float(seconds) for stage, seconds in json.loads(_file(name).read_text("utf-8")).items()}
    return {}


def keep(name: str, stages: Mapping[str, float]) -> None:
    """Remember the stages of an export for the next one's estimate."""
    with contextlib.suppress(OSError):  # an estimate is not worth an error
        write_atomic(_file(name), json.dumps({stage: round(seconds, 2) for stage, seconds in stages.items()}))


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
        self._last = last_time(name)
        self._begun: dict[str, float] = {}
        self._stage = ""

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._start

    @property
    def expected(self) -> float | None:
        """Seconds from the beginning to the end: what has passed, and what this stage and later ones took last time."""
        names = list(self._last)
        if self._stage not in names:
            return sum(self._last.values()) or None
        left = itertools.islice(self._last.values(), names.index(self._stage), None)
        return self._begun[self._stage] + sum(left)

    def show(self, stage: str) -> None:
        """A stage begins."""
        self._stage = stage
        self._begun.pop(stage, None)  # it may begin again
        self._begun[stage] = self.seconds
        _active[:] = [self]
        self._say(stage, True)

    def detail(self, text: str) -> None:
        """What the stage works on now."""
        self._say(f"{self._stage}: {text}", False)

    def _say(self, text: str, stage: bool) -> None:
        if self._display is None:
            listener[0](self._name, text, self.expected, stage)
        else:
            self._display.show(self._name, text, self.expected, self._start, stage=stage)

    def done(self) -> None:
        """The export has succeeded: its times are the next one's estimate."""
        ends = [*list(self._begun.values())[1:], self.seconds]
        keep(self._name, {stage: end - begun for (stage, begun), end in zip(self._begun.items(), ends, strict=True)})

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
