"""The table of ``docs/speed.md``: what the lab saw on virtual devices."""

from __future__ import annotations

from core.errors import ConfigError
from verify.layers.model import Lab, LayerCell
from verify.layers.words import agreement, kernels
from verify.tables import Row, Table

LAB = Table("docs/speed.md", "lab")


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
            "./inv self.lab --device sme,pi5,pi3 --layers all --update",
        )  # fmt: skip
    devices = {row["device"] for row in rows}
    LAB.put(rows, ("device", "layer", "type"), keep=lambda row: row["device"] not in devices)


def _row(cell: LayerCell) -> Row | None:
    if not cell.emulated or cell.first is None or cell.second is None:
        return None
    counts = [way.instructions for way in cell.ways]
    if counts[0] is None or counts[1] is None:
        return None
    first, second = counts[0].least, counts[1].least
    return {
        "device": cell.device,
        "layer": cell.layer,
        "type": cell.type or cell.scheme,
        "kernel": _code(kernels(cell.first)),
        "kernel without KleidiAI": "the same" if cell.same_kernels else _code(kernels(cell.second)),
        "agreement": agreement(cell),
        "instructions": f"{first:,}",
        "without KleidiAI": f"{second:,}",
        "ratio": f"{first / second:.2f}",
    }


def _code(names: str) -> str:
    """Kernels as code; the word KleidiAI before a kernel's name is not part of it."""
    parts = [name.rpartition(" ") for name in names.split(", ") if name]
    return ", ".join(f"{library}{space}`{kernel}`" for library, space, kernel in parts)
