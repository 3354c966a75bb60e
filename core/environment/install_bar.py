"""The one changing line of an installation: a bar over all of it, the bytes, their rate, and the time.

Runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.console.first import Whole

_TICK = 0.3  # seconds between two looks at what pip has fetched
_LOOK = 1.5  # seconds between two looks at what pip has unpacked, thousands of files
_WIDTH = 20  # characters of the bar
_OF_DOWNLOAD = 0.6  # the bar's part that is the download

SHOWN = "SLIPWAY_SHOWN"
"""Set by a process of ours that shows our progress itself: it gets lines, each behind `MARK`."""
MARK = "\x1f"
listener: list[Callable[[float, str], None]] = []
"""What hears of an installation instead of the terminal: how much of it is done, from 0 to 1, and the words."""


@dataclass(frozen=True)
class Size:
    """What an installation takes, about."""

    label: str
    download: float = 0.0
    """MB. 0: not known."""
    disk: float = 0.0
    """MB."""

    def __str__(self) -> str:
        if not self.download:
            return self.label
        seconds = 5 + self.download / 8 + self.disk / 40  # 8 MB/s from the index, and a slow processor
        takes = f"{max(10, round(seconds, -1)):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
        return f"{self.label}: {self.download:.0f} MB to download, {self.disk:.0f} MB on disk, about {takes}"


def tell(done: float, words: str) -> None:
    """Say how far an installation is to the process that shows it."""
    say(f"{MARK}{done:.3f} {words}")


def say(line: str, end: str = "\n") -> None:
    """One line on stderr."""
    sys.stderr.write(line + end)
    sys.stderr.flush()


class Line:
    """It is shown on a terminal while a ``with`` block runs; elsewhere one plain line says what is installed.

    Args:
        size: of what is installed.
        scratch: pip's folder for temporary files, into which it downloads.
        target: the folder that pip unpacks into.
    """

    def __init__(self, size: Size, scratch: Path, target: Path) -> None:
        self.doing = ""
        self.unpacking = False
        self._size, self._scratch, self._target = size, scratch, target
        self._begun = time.monotonic()
        self._whole = Whole.resumed()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Line:  # noqa: PYI034 - typing.Self is of Python 3.11
        say(f"Installing {self._size}")
        if listener or sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._over.set()
            self._thread.join()
            if not listener:
                say("\r\x1b[K", end="")

    def _tick(self) -> None:
        most = seen = unpacked = 0
        rate, looked, counted = 0.0, self._begun, 0.0
        before = _bytes_in(self._target) + _bytes_in(self._scratch)
        while not self._over.wait(_TICK):
            now = time.monotonic()
            if not self.unpacking:
                size = _bytes_in(self._scratch)
                rate = 0.7 * rate + 0.3 * max(size - seen, 0) / (now - looked)
                seen, looked, most = size, now, max(most, size)
            elif now - counted > _LOOK:
                unpacked, counted = _bytes_in(self._target) + _bytes_in(self._scratch) - before, now
            part, words = self._part(most, unpacked), self._text(most, rate)
            if listener:
                listener[-1](part, words)
            else:
                line = f"{self._bar(part, int(now - self._begun))}  {words}"
                say(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="")

    def _text(self, fetched: int, rate: float) -> str:
        at = f" at {rate / 1e6:.1f} MB/s" if rate > 3e5 and not self.unpacking else ""
        return f"{fetched / 1e6:.0f} MB{at}  {self.doing}" if fetched > 1e5 else self.doing

    def _part(self, fetched: int, unpacked: int) -> float:
        """How far all of it is: first the download, then the rest."""
        if not self._size.download:
            return 0.0
        if self.unpacking:
            return _OF_DOWNLOAD + (1 - _OF_DOWNLOAD) * min(0.99, max(0, unpacked) / 1e6 / self._size.disk)
        return _OF_DOWNLOAD * min(1.0, fetched / 1e6 / self._size.download)

    def _bar(self, part: float, seconds: int) -> str:
        """A bar over the installation, or over the first deploy that begins with it."""
        if self._whole is None and not self._size.download:
            return f"{seconds // 60}:{seconds % 60:02}"
        said = f"{part:4.0%}  {seconds // 60}:{seconds % 60:02}"
        if self._whole is not None:
            self._whole.far("packages", part)
            part, said = self._whole.share(), str(self._whole)
        full = int(_WIDTH * part)
        return f"{'#' * full}{'.' * (_WIDTH - full)} {said}"


def _bytes_in(folder: Path) -> int:
    """Bytes of the files below ``folder``, which another program changes."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(top) / name).lstat().st_size
    return total
