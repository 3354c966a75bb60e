"""What a build shows while it goes on: numbered steps, and how far the compiler is."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from core import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")
_BUILDING = "Building from source "


class Steps:
    """Numbered lines for people, one when a step begins; on a terminal also a bar, fed by Ninja's own counting.

    Args:
        total: how many steps there are.
        quiet: no lines, the bar only.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._total = total
        self._quiet = quiet
        self._done: list[str] = []
        self._package = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def begin(self, text: str) -> None:
        """Say that the next step begins; nothing when it began already."""
        if text in self._done:
            return
        self._done.append(text)
        self._package = text
        self._hide()
        self._note(f"[{len(self._done)}/{self._total}] {text}")

    def part(self, text: str) -> None:
        """Say what of a step is being done."""
        self._package = text
        self._hide()
        self._note(f"      {text}")

    def heard(self, line: str) -> None:
        """Take in a line that Conan, CMake or Ninja printed."""
        if line.startswith(_BUILDING):
            self.part(line.removeprefix(_BUILDING).partition(":")[0])
        elif line.startswith("ccache: "):
            self.part(line)
        elif match := _NINJA.match(line):
            self._show(int(match[1]), int(match[2]))

    def _note(self, text: str) -> None:
        if not self._quiet:
            console.note(text)

    def _show(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = console.counter()
            self._bar.start()
        if self._task is None:
            self._task = self._bar.add_task(self._package, total=total)
        self._bar.update(self._task, completed=done, total=total)

    def _hide(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
        self._task = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
