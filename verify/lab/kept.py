"""The table of ``docs/kleidiai.md``: what the lab saw on virtual devices, kept in ``docs/data/lab.json``."""

from __future__ import annotations

from itertools import groupby

from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import ConfigError
from core.files import write_json
from core.paths import ROOT
from verify.lab.model import Lab, LabCell
from verify.lab.words import agreement, kernels

KEPT = ROOT / "docs" / "data" / "lab.json"
_HEADINGS = (
    "layer", "type", "kernel", "kernel without KleidiAI", "agreement", "instructions", "without KleidiAI", "ratio",
)  # fmt: skip


class Row(BaseModel):
    """A layer in one data type on one device, two ways."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    layer: str
    type: str
    kernels: tuple[str, str]
    agreement: str
    instructions: tuple[int, int]
    same_kernels: bool


class Kept(BaseModel):
    """All rows, and when they were measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    day: str
    rows: tuple[Row, ...]


def keep(found: Lab) -> None:
    """Keep the cells of emulated devices.

    Raises:
        ConfigError: a cell failed, was not run, or a device did not count; the docs would have a hole.
    """
    possible = [cell for cell in found.cells if cell.outcome != "impossible"]
    rows = [row for cell in possible if (row := _row(cell)) is not None]
    if len(rows) != len(possible):
        without = [cell.key for cell in possible if _row(cell) is None]
        raise ConfigError(
            "Nothing was kept for the docs.", f"{len(without)} cells have no instructions: {', '.join(without[:5])}",
            "./inv lab --device sme,pi5,pi3 --layers all --update",
        )  # fmt: skip
    kept = Kept(day=found.created[:10], rows=tuple(rows))
    write_json(KEPT, kept.model_dump(mode="json"))
    console.note(f"kept {len(rows)} rows in {console.shown(KEPT)}; python -m verify.docs writes the tables")


def _row(cell: LabCell) -> Row | None:
    if not cell.emulated or cell.first is None or cell.second is None:
        return None
    counts = [way.instructions for way in cell.ways]
    if counts[0] is None or counts[1] is None:
        return None
    return Row(
        device=cell.device, layer=cell.layer, type=cell.type or cell.scheme,
        kernels=(kernels(cell.first), kernels(cell.second)), agreement=agreement(cell),
        instructions=(counts[0].least, counts[1].least), same_kernels=cell.same_kernels,
    )  # fmt: skip


def markdown() -> str:
    """A table for each device."""
    if not KEPT.is_file():
        return "No figures are kept yet: the command above prints them.\n"
    kept = Kept.model_validate_json(KEPT.read_text(encoding="utf-8"))
    parts = [f"Measured on {kept.day}.\n"]
    for device, rows in groupby(kept.rows, key=lambda row: row.device):
        lines = [_HEADINGS, ("---",) * len(_HEADINGS), *(_cells(row) for row in rows)]
        parts.append(f"### {device}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts)


def _cells(row: Row) -> tuple[str, ...]:
    first, second = row.instructions
    return (
        row.layer, row.type, _code(row.kernels[0]), "the same" if row.same_kernels else _code(row.kernels[1]),
        row.agreement, f"{first:,}", f"{second:,}", f"{first / second:.2f}",
    )  # fmt: skip


def _code(names: str) -> str:
    """Kernels as code; the word KleidiAI before a kernel's name is not part of it."""
    parts = [name.rpartition(" ") for name in names.split(", ") if name]
    return ", ".join(f"{library}{space}`{kernel}`" for library, space, kernel in parts)
