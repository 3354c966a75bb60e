"""One build at a time of a folder in ``dist/``; skipped if it was made from the same inputs already."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

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
