"""A matrix as one HTML file: plots, a table to filter and sort, without external resources, light or dark."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from core.console.units import counted, duration, elapsed, size, three
from core.errors import ConfigError
from core.formats.program import ENGINES
from core.plain import plain
from deploy.matrix import plots, ratios
from deploy.matrix.model import CellResult, Impossible, Matrix, load_matrix
from deploy.matrix.people import disturbed, exact, failures

TEMPLATE = Path(__file__).with_name("matrix.html.j2")
_SERIES = 24
"""Plots of the history at most."""
_MARKS = {"passed": "✓", "differs": "≠", "failed": "✗", "not run": "○", "impossible": "–"}


def text(found: Matrix, earlier: Sequence[Matrix] = ()) -> str:
    """The page.

    Args:
        earlier: matrices of the same name, the oldest first; the last may be this one.
    """
    cells = found.cells
    return template(TEMPLATE).render(
        found=found,
        engines=[name for name in ENGINES if any(cell.engine == name for cell in cells)],
        tiles=_tiles(found),
        grid=_grid(found),
        marks=_MARKS,
        latency=plots.latency(cells),
        bundles=plots.bars(
            {f"{c.engine} · {c.target}": (c.bundle_bytes, f"e-{c.engine}") for c in cells if c.bundle_bytes},
            "Sizes of bundles",
        ),
        programs=plots.bars({c.program: (c.program_bytes, "") for c in cells if c.program_bytes}, "Sizes of programs"),
        errors=plots.errors(cells),
        history=_history(found, earlier),
        verdicts=_verdicts(found),
        emulated=counted(sum(cell.emulated for cell in cells), "cell") if any(cell.emulated for cell in cells) else "",
        headline=headline(found),
        failures=failures(cells),
        disturbed={cell.key: notes for cell in cells if (notes := disturbed(cell))},
        gains=[
            (title, ratios.summary(rows), rows)
            for title, rows in (("Engines", ratios.of_engines(cells)), ("Schemes", ratios.of_schemes(cells)))
            if rows
        ],
        impossible=_reasons(found.impossible),
    )


@functools.cache
def template(file: Path) -> Template:
    """The template in ``file``, which may include the style sheet and the table's script of this folder."""
    environment = Environment(
        loader=FileSystemLoader([file.parent, TEMPLATE.parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "size": size, "figure": _figure, "duration": duration, "elapsed": elapsed, "exact": exact, "three": three,
        "counted": counted,
    }  # fmt: skip
    return environment.get_template(file.name)


def _shown(value: object) -> object:
    """Called by jinja for each value: makes texts `plain`; jinja escapes them afterwards."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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


def _tiles(found: Matrix) -> list[tuple[str, str, str]]:
    """Number, word and colour of the page's summary."""
    passed = sum(cell.outcome == "passed" for cell in found.cells)
    tiles = [
        (f"{passed}", f"of {counted(len(found.cells), 'cell')} passed", "good" if passed == len(found.cells) else "")
    ]
    if found.failures:
        tiles.append((str(len(found.failures)), "failed", "bad"))
    left = sum(cell.outcome == "not run" for cell in found.cells)
    kept = sum(cell.reused for cell in found.cells)
    tiles += [(str(left), "not run", "warn")] if left else []
    tiles += [(str(kept), "kept from before", "")] if kept else []
    if found.baseline:
        worse = len(found.regressions)
        words = f"figure{'' if worse == 1 else 's'} worse than the baseline"
        tiles.append((str(worse), words, "bad" if worse else "good"))
    devices = len({cell.device for cell in found.cells})
    tiles.append((str(devices), "device" if devices == 1 else "devices", ""))
    tiles += [(str(len(found.impossible)), "impossible", "")] if found.impossible else []
    tiles.append((elapsed(found.seconds), "in all" if found.jobs == 1 else f"sum over {found.jobs} jobs", ""))
    return tiles


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


def _history(found: Matrix, earlier: Sequence[Matrix]) -> list[Markup]:
    """Median latency of real devices over the matrices of this name; sizes of bundles for the emulated ones."""
    matrices = [each for each in earlier if each.created < found.created] + [found]
    before = [{cell.key: cell for cell in each.cells if cell.outcome == "passed"} for each in matrices]
    notes = tuple(each.created for each in matrices)
    base = {change.key: change for change in found.changes if change.what == "latency p50" and change.before}
    series = []
    for cell in found.cells:
        if cell.latency:
            values = tuple(_p50(each.get(cell.key)) for each in before)
            if not any(values):
                continue
            change = base.get(cell.key)
            line = float(change.before.split()[0]) if change else None
            series.append(
                plots.Series(f"{cell.device} · {cell.program} · {cell.engine}", values, notes, line, f"e-{cell.engine}")
            )
    if len(matrices) > 1 or base:
        return [plots.history(each) for each in series[:_SERIES]]
    return []


def _p50(cell: CellResult | None) -> float | None:
    return cell.latency.p50 if cell and cell.latency and not cell.throttled else None


def _verdicts(found: Matrix) -> dict[str, str]:
    """The worst verdict of each cell against the baseline."""
    order = ["not compared", "same", "better", "cannot tell", "worse"]
    worst: dict[str, str] = {}
    for change in found.changes:
        now = worst.get(change.key, "not compared")
        worst[change.key] = max(now, change.verdict, key=order.index)
    return worst


def _reasons(impossible: Sequence[Impossible]) -> list[tuple[str, list[str]]]:
    """Each reason with the cells that it makes impossible."""
    found: dict[str, list[str]] = {}
    for each in impossible:
        found.setdefault(each.why, []).append(each.key)
    return list(found.items())
