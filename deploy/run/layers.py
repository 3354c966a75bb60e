"""Which layer seems to give too much: differences against the patterns that an export has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from core.errors import ProgramError


class Suspect(BaseModel):
    """A layer along whose pattern the differences go."""

    model_config = ConfigDict(frozen=True)

    name: str
    gain: float
    """By what part it seems to give more; negative: less."""
    limit: float
    """What part rounding may seem to be."""
    share: float
    """How much of the differences' power the pattern explains, 0 to 1."""

    @property
    def text(self) -> str:
        """``as if blocks.3 gave 1.0102 times what it should, and rounding does 1 ± 0.0025``."""
        return (
            f"as if {self.name} gave {1 + self.gain:.4f} times what it should, and rounding does 1 ± {self.limit:.2g}"
        )


def suspect(file: Path, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> Suspect | None:
    """The layer whose pattern explains most of the differences, of those beyond their limits; else ``None``.

    Args:
        file: `core.formats.program.Layers.file`.
        got: the output, flat, float64, all numbers finite.

    Raises:
        ProgramError: the file is missing, or does not fit the output.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            names, elements, limits = arrays["names"], arrays["elements"], arrays["limits"]
            moves = arrays["moves"].astype(np.float64) * arrays["scale"].astype(np.float64)[:, None]
        far = got[elements] - want[elements]
        power = np.square(moves).sum(axis=1)
        gains = moves @ far / power
        beyond = np.abs(gains) > limits
    except Exception as error:  # whatever a damaged archive lets NumPy raise
        raise ProgramError(
            f"{file} does not fit its program.", f"{type(error).__name__}: {error}", "export it again with --force"
        ) from error
    if not beyond.any():
        return None
    explained = np.where(beyond, np.square(gains) * power, -1.0)
    worst = int(explained.argmax())
    return Suspect(
        name=str(names[worst]),
        gain=float(gains[worst]),
        limit=float(limits[worst]),
        share=float(explained[worst] / np.square(far).sum()),
    )
