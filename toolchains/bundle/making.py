"""One build at a time of a folder in ``dist/``; skipped if it was made from the same inputs already."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from typing_extensions import Self

from core import console
from core.console.live import Step
from core.errors import BundleError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.files.locks import Clock
from core.formats.bundle import MANIFEST
from core.paths import cache_dir
from toolchains.bundle import inputs
from toolchains.bundle.inputs import Selection
from toolchains.compilers import families
from toolchains.targets import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A folder to build for a target, with a manifest in it."""

    target: Target
    toolchain: str
    """The compiler family."""
    kind: str
    """The engine, or `toolchains.bundle.inputs.NATIVE`."""
    folder: Path
    force: bool = False
    """Compile and check again although nothing has changed."""
    allow_newer_glibc: bool = False
    selection: Selection | None = None
    """Link only what some programs need."""
    facts: tuple[object, ...] = ()
    """What else decides the result."""

    @functools.cached_property
    def digest(self) -> str:
        """Of everything that it is made from."""
        facts = (self.toolchain, self.allow_newer_glibc, self.selection, *self.facts)
        return inputs.digest(self.kind, self.target, *facts)

    @property
    def name(self) -> str:
        """``lean-linux-arm64``."""
        return f"{self.folder.name}-{self.target.name}"

    @property
    def log(self) -> Path:
        """Everything that Conan and the compilers say."""
        return cache_dir("logs") / f"{self.name}.log"

    @property
    def stamp(self) -> Path:
        """The record of its inputs, beside the folder, not in it."""
        return self.folder.parent / f".{self.folder.name}.built.json"

    def _facts(self) -> dict[str, str]:
        return {"inputs": self.digest, "manifest": sha256_file(self.folder / MANIFEST)}

    def _current(self, load: Callable[[Path], T]) -> T | None:
        """The existing folder, if it is complete and was made from the same inputs."""
        try:
            same = json.loads(self.stamp.read_text(encoding="utf-8")) == self._facts()
            return load(self.folder) if same and not self.force else None
        except (OSError, ValueError, BundleError):
            return None

    def ensure(self, load: Callable[[Path], T], build: Callable[[Job], None]) -> T:
        """The folder, built first if necessary; two builds at once take turns.

        Args:
            load: reads the folder; raises `BundleError` when something in it is damaged.
            build: makes the folder; an interrupted one leaves the previous folder as it was.
        """
        if (found := self._current(load)) is not None:
            return found
        waiting = f"waiting: {self.folder.name} for {self.target.name} is being built already"
        with locked(f"dist-{sha256_bytes(str(self.folder).encode())[:16]}", waiting):
            if (found := self._current(load)) is not None:
                return found
            build(self)
            write_json(self.stamp, self._facts())
            return load(self.folder)

    @contextlib.contextmanager
    def begun(self, total: int) -> Iterator[tuple[Steps, Path, str]]:
        """Prepare the compilers; the ``total`` steps, an empty folder that takes the job's place in the end, and the
        compilers' name and version.
        """
        clock = Clock()
        self.log.write_text("", encoding="utf-8")
        with Steps(total, key=f"{self.name} {self.toolchain}") as steps:
            steps.begin(f"preparing {self.toolchain} for {self.target.name}")
            compilers = families.family(self.toolchain).ensure(self.target)
            with new_folder(self.folder) as new:
                yield steps, new, f"{compilers.family} {compilers.version}"
        console.note(f"built {self.folder} in {clock}")


_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")
BUILDING = "Building from source "
"""How Conan says that it makes a package."""


class Steps:
    """Numbered steps: on a terminal a live line each, with Ninja's own counting; elsewhere a line when one begins.

    Args:
        key: of the build, by which the steps' times are found the next time.
    """

    def __init__(self, total: int, key: str) -> None:
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
        self._step = console.begin(f"[{len(self._done)}/{self._total}] {text}", f"{self._key}: {text}")

    def part(self, text: str) -> None:
        """Say what of a step is being done."""
        if self._step is not None:
            self._step.now(text)
            self._step.count(0)
        console.note(f"      {text}")

    def heard(self, line: str) -> None:
        """Take in a line that Conan, CMake or Ninja printed."""
        if line.startswith(BUILDING):
            self.part(line.removeprefix(BUILDING).partition(":")[0])
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
