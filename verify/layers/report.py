"""What the lab leaves: ``lab.json``, ``lab.md``, the table on the screen, and the one of the docs."""

from __future__ import annotations

import json
from pathlib import Path

from core import console
from core.errors import ConfigError
from core.files import write_atomic
from verify.layers.model import Lab, LayerCell, Way
from verify.tables import Row, Table, table_of

JSON, MARKDOWN = "lab.json", "lab.md"
LAB = Table("docs/speed.md", "lab")


def write(found: Lab, folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / JSON, found.model_dump_json(indent=1) + "\n")
    write_atomic(folder / MARKDOWN, f"# Lab {found.name}\n\n{found.about}\n\n{table_of(*rows(found))}")


def load(folder: Path) -> Lab:
    """Read a ``lab.json``."""
    return Lab.model_validate(json.loads((folder / JSON).read_text(encoding="utf-8")))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _least(way: Way | None) -> str:
    return f"{way.instructions.least:,}" if way and way.instructions else ""


def _ratio(cell: LayerCell) -> str:
    return "" if cell.ratio is None else f"{cell.ratio:.3f} [{cell.low:.3f}, {cell.high:.3f}]"


def rows(found: Lab) -> tuple[list[str], list[list[str]]]:
    """Headings and a line for each cell; times only where a real device was measured."""
    timed = any(cell.ratio is not None for cell in found.cells)
    heads = [
        *("device", "layer", "type", "kernel", "other way's kernel", "agreement"),
        *(("instructions", "other way's", "their ratio") if found.counted else ()),
        *(("p50 ms", "other p50", "ratio", "answer") if timed else ("answer",)),
    ]
    lines = []
    for cell in found.cells:
        first, second = cell.first, cell.second
        lines.append([
            cell.device, cell.layer, cell.type or cell.scheme, first.used if first else "",
            "the same" if cell.same_kernels else second.used if second else "", cell.agreement,
            *([_least(first), _least(second), _number(cell.instructions)] if found.counted else []),
            *([*(_number(way.p50 if way else None) for way in (first, second)), _ratio(cell)] if timed else []),
            cell.answer,
        ])  # fmt: skip
    return heads, lines


def printed(found: Lab, folder: Path, as_json: bool) -> None:
    """Print it: JSON, or the table, the count and where the reports are."""
    if as_json:
        console.print_json(found.model_dump(mode="json"))
        return
    console.table("The lab", *rows(found), caption=found.about)
    console.note(f"{summary(found)}. Reports: {console.shown(folder / JSON)}, {MARKDOWN}")


def summary(found: Lab) -> str:
    """``12 measured: 5 faster, 1 slower, 6 without a difference seen; 2 impossible``."""
    measured = [cell for cell in found.cells if cell.outcome == "measured"]
    text = f"{len(measured)} measured"
    if any(cell.compared for cell in measured):
        counts = [sum(cell.answer == one for cell in measured) for one in ("faster", "slower", "no difference seen")]
        text += ": {} faster, {} slower, {} without a difference seen".format(*counts)
    differing = sum(bool(cell.differing) for cell in measured)
    text += f"; {differing} with outputs that differ from the reference" if differing else ""
    for outcome in ("failed", "not run", "impossible"):
        number = sum(cell.outcome == outcome for cell in found.cells)
        text += f"; {number} {outcome}" if number else ""
    return text


def keep(found: Lab) -> None:
    """Keep the cells of emulated devices in the table of ``docs/speed.md``.

    Raises:
        ConfigError: a cell failed, was not run, or a device did not count; the docs would have a hole.
    """
    possible = [cell for cell in found.cells if cell.outcome != "impossible"]
    kept = [row for cell in possible if (row := _row(cell)) is not None]
    if len(kept) != len(possible):
        without = [cell.key for cell in possible if _row(cell) is None]
        raise ConfigError(
            "Nothing was kept for the docs.", f"{len(without)} cells have no instructions: {', '.join(without[:5])}",
            "./inv self.lab --device sme,pi5,pi3 --layers all --update",
        )  # fmt: skip
    devices = {row["device"] for row in kept}
    LAB.put(kept, ("device", "layer", "type"), keep=lambda row: row["device"] not in devices)


def _row(cell: LayerCell) -> Row | None:
    first, second = cell.first, cell.second
    if not (cell.emulated and first and second and first.instructions and second.instructions):
        return None
    return {
        "device": cell.device,
        "layer": cell.layer,
        "type": cell.type or cell.scheme,
        "kernel": _code(first),
        "kernel without KleidiAI": "the same" if cell.same_kernels else _code(second),
        "agreement": cell.agreement,
        "instructions": _least(first),
        "without KleidiAI": _least(second),
        "ratio": f"{first.instructions.least / second.instructions.least:.2f}",
    }


def _code(way: Way) -> str:
    """Kernels as code; the word KleidiAI before a kernel's name is not part of it."""
    parts = [name.rpartition(" ") for name in way.used.split(", ") if name]
    return ", ".join(f"{library}{space}`{kernel}`" for library, space, kernel in parts)
