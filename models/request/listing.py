"""The zoo with the state of its exports."""

from __future__ import annotations

from dataclasses import dataclass

from models.request.current import state
from models.zoo import load_zoo


@dataclass(frozen=True)
class Row:
    """A line of ``./inv models``."""

    model: str
    title: str
    format: str
    scheme: str
    state: str
    """``current``, ``outdated`` or ``not exported``."""
    folder: str
    size: int
    """Size of the program in bytes; 0 if it does not exist."""


def listing() -> list[Row]:
    """The zoo with the state of its exports, one row for each model, format and scheme."""
    rows = []
    for model in load_zoo().values():
        for format in ("pte", "onnx"):  # noqa: A001
            for scheme in model.schemes_of(format):
                word, folder, size = state(model.name, scheme, format)
                rows.append(Row(model.name, model.title, format, scheme, word, str(folder), size))
    return rows
