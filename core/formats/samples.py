"""Samples to compare programs with: inputs, the float model's outputs for them, and labels if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One execution's inputs and what belongs to them; all files are ``.npy``."""

    inputs: tuple[Path, ...]
    wanted: tuple[Path, ...]
    """Outputs of the float model in PyTorch."""
    label: Any = None
    """As the user's data has it: a class, an array with a class for each row, anything for a function of his own."""
    rows: int = 0
    """The first rows of the inputs that count, if the last batch was filled up; 0: all."""


@dataclass(frozen=True)
class Samples:
    """All of them."""

    each: Sequence[Sample]
    source: str
    """The file, folder or function that they are from; empty: the model's own example inputs."""
    of: int
    """How many the source has; ``each`` may be fewer."""

    @property
    def labelled(self) -> bool:
        """Whether every sample has a label."""
        return bool(self.each) and all(one.label is not None for one in self.each)
