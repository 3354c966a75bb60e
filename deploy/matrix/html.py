"""A matrix as one HTML file: tables, one of them to filter and sort, without external resources, light or dark."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from core.console.units import counted, duration, elapsed, size
from core.errors import ConfigError
from core.plain import plain
from deploy.matrix.model import CellResult, Impossible, Matrix, disturbed, exact, failures, load_matrix

_COLUMNS, _ROWS = 8, 48
"""Matrices and cells of the history at most."""
_MARKS = {"passed": "✓", "differs": "≠", "failed": "✗", "not run": "○", "impossible": "–"}


def text(found: Matrix, earlier: Sequence[Matrix] = ()) -> str:
    """The page.

    Args:
        earlier: matrices of the same name, the oldest first; the last may be this one.
    """
    cells = found.cells
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) else value,  # jinja escapes it afterwards
    )
    environment.filters |= {
        "size": size, "figure": _figure, "duration": duration, "elapsed": elapsed, "exact": exact, "counted": counted,
    }  # fmt: skip
    return environment.get_template("matrix.html.j2").render(
        found=found,
        grid=_grid(found),
        marks=_MARKS,
        history=_history(found, earlier),
        emulated=counted(sum(cell.emulated for cell in cells), "cell") if any(cell.emulated for cell in cells) else "",
        headline=headline(found),
        failures=failures(cells),
        disturbed={cell.key: notes for cell in cells if (notes := disturbed(cell))},
        impossible=_reasons(found.impossible),
    )


def history(files: Sequence[Path]) -> list[Matrix]:
    """The matrices in these files, by age; one that cannot be read any more is left out."""
    found = []
    for file in files:
        with contextlib.suppress(ConfigError):
            found.append(load_matrix(file))
    return sorted(found, key=lambda matrix: matrix.created)


def _figure(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def headline(found: Matrix) -> str:
    """What was run and how it ended, in a sentence or two."""
    cells = found.cells
    devices, engines, programs = (
        len({getattr(cell, key) for cell in cells}) for key in ("device", "engine", "program")
    )
    what = f"{counted(programs, 'program')} on {counted(devices, 'device')} with {counted(engines, 'engine')}"
    groups = failures(cells)
    if not groups:
        left = sum(cell.outcome == "not run" for cell in cells)
        end = f"{counted(left, 'cell')} did not run" if left else f"all {len(cells)} cells passed"
        return f"{what}: {end if len(cells) > 1 or left else 'the cell passed'}."
    first = groups[0]
    causes = "" if len(groups) == 1 else f", for {len(groups)} causes"
    most = "" if len(groups) == 1 else f"Most frequent ({counted(len(first.keys), 'cell')}): "
    return f"{what}: {len(found.failures)} of {counted(len(cells), 'cell')} failed{causes}. {most}{first.what}"


def _grid(found: Matrix) -> dict[str, Any]:
    """A row for each device, target and engine, a column for each program."""
    columns = list(dict.fromkeys([c.program for c in found.cells] + [i.program for i in found.impossible]))
    rows: dict[tuple[str, str, str], dict[str, tuple[str, str]]] = {}
    emulated: dict[str, bool] = {}
    for cell in found.cells:
        emulated[cell.device] = cell.emulated
        title = f"{cell.key}: {cell.problem.what if cell.problem else cell.outcome}"
        rows.setdefault((cell.device, cell.target, cell.engine), {})[cell.program] = (cell.outcome, title)
    for each in found.impossible:
        row = rows.setdefault((each.device, each.target, each.engine), {})
        row.setdefault(each.program, ("impossible", f"{each.key}: {each.why}"))
    return {
        "columns": sorted(columns),
        "rows": [(key, emulated.get(key[0], False), cells) for key, cells in sorted(rows.items())],
    }


def _history(found: Matrix, earlier: Sequence[Matrix]) -> dict[str, Any]:
    """Median latency of real devices' cells over the last matrices of this name; empty without earlier ones."""
    matrices = [*(each for each in earlier if each.created < found.created), found][-_COLUMNS:]
    by_key = [{cell.key: cell for cell in each.cells if cell.outcome == "passed"} for each in matrices]
    rows = [(cell.key, [_p50(each.get(cell.key)) for each in by_key]) for cell in found.cells if cell.latency]
    rows = [row for row in rows if any(row[1])]
    heads = [each.created[:16].replace("T", " ") for each in matrices]
    return {"heads": heads, "rows": rows[:_ROWS]} if len(matrices) > 1 and rows else {}


def _p50(cell: CellResult | None) -> float | None:
    return cell.latency.p50 if cell and cell.latency and not cell.throttled else None


def _reasons(impossible: Sequence[Impossible]) -> list[tuple[str, list[str]]]:
    """Each reason with the cells that it makes impossible."""
    found: dict[str, list[str]] = {}
    for each in impossible:
        found.setdefault(each.why, []).append(each.key)
    return list(found.items())
