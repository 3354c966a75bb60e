"""What a build shows while it goes on: numbered steps, and how far the compiler is."""

from __future__ import annotations

import re
from types import TracebackType

from typing_extensions import Self

from core import console
from core.console.live import Step

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")
_BUILDING = "Building from source "


class Steps:
    """Numbered steps: on a terminal a live line each, with Ninja's own counting; elsewhere a line when one begins.

    Args:
        total: how many steps there are.
        quiet: no lines, but the live one.
        key: of the build, by which the steps' times are found the next time.
    """

    def __init__(self, total: int, *, quiet: bool = False, key: str = "") -> None:
        self._total = total
        self._quiet = quiet
        self._key = key
        self._done: list[str] = []
        self._step: Step | None = None

    def begin(self, text: str) -> None:
        """Say that the next step begins; nothing when it began already."""
        if text in self._done:
            return
        self._end()
        self._done.append(text)
        said = text if self._quiet else f"[{len(self._done)}/{self._total}] {text}"
        key = f"{self._key}: {text}" if self._key else ""
        self._step = console.begin(said, key, announce=not self._quiet)

    def part(self, text: str) -> None:
        """Say what of a step is being done."""
        if self._step is not None:
            self._step.now(text)
            self._step.count(0)
        if not self._quiet:
            console.note(f"      {text}")

    def heard(self, line: str) -> None:
        """Take in a line that Conan, CMake or Ninja printed."""
        if line.startswith(_BUILDING):
            self.part(line.removeprefix(_BUILDING).partition(":")[0])
        elif line.startswith("ccache: "):
            self.part(line)
        elif (match := _NINJA.match(line)) and self._step is not None:
            self._step.count(int(match[1]), int(match[2]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(ok=error is None)

    def _end(self, ok: bool = True) -> None:
        if self._step is not None:
            self._step.end(ok=ok)
            self._step = None
