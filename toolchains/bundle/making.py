"""One build at a time of a folder in ``dist/``; skipped if it was made from the same inputs already."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from typing_extensions import Self

from core import console
from core.console.live import Step
from core.errors import BundleError
from core.files import locked, sha256_bytes, sha256_file, write_json
from core.formats.bundle import MANIFEST

T = TypeVar("T")


@dataclass(frozen=True)
class Making(Generic[T]):
    """A folder that a build leaves, with a manifest in it."""

    folder: Path
    digest: str
    """Of everything that it is made from: `toolchains.bundle.inputs.digest`."""
    load: Callable[[Path], T]
    """Reads the folder; raises `BundleError` when something in it is damaged."""

    @property
    def stamp(self) -> Path:
        """The record of its inputs, beside the folder, not in it."""
        return self.folder.parent / f".{self.folder.name}.built.json"

    def _facts(self) -> dict[str, str]:
        return {"inputs": self.digest, "manifest": sha256_file(self.folder / MANIFEST)}

    def current(self) -> T | None:
        """The existing folder, if it is complete and was made from the same inputs."""
        try:
            if json.loads(self.stamp.read_text(encoding="utf-8")) != self._facts():
                return None
            return self.load(self.folder)
        except (OSError, ValueError, BundleError):
            return None

    def ensure(self, build: Callable[[], None], waiting: str, *, force: bool) -> T:
        """The folder, built first if necessary; two builds at once take turns.

        Args:
            build: makes the folder; an interrupted one leaves the previous folder as it was.
            waiting: printed while another process builds it.
            force: build although nothing has changed.
        """
        found = None if force else self.current()
        if found is not None:
            return found
        with locked(f"dist-{sha256_bytes(str(self.folder).encode())[:16]}", waiting):
            found = None if force else self.current()
            if found is not None:
                return found
            build()
            write_json(self.stamp, self._facts())
            return self.load(self.folder)


_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")
_BUILDING = "Building from source "


class Steps:
    """Numbered steps: on a terminal a live line each, with Ninja's own counting; elsewhere a line when one begins.

    Args:
        total: how many steps there are.
        key: of the build, by which the steps' times are found the next time.
    """

    def __init__(self, total: int, key: str = "") -> None:
        self._total = total
        self._key = key
        self._done: list[str] = []
        self._step: Step | None = None

    def begin(self, text: str) -> None:
        """Say that the next step begins; nothing when it began already."""
        if text in self._done:
            return
        self._end()
        self._done.append(text)
        said = f"[{len(self._done)}/{self._total}] {text}"
        key = f"{self._key}: {text}" if self._key else ""
        self._step = console.begin(said, key)

    def part(self, text: str) -> None:
        """Say what of a step is being done."""
        if self._step is not None:
            self._step.now(text)
            self._step.count(0)
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
