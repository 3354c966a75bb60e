"""The matrix on the terminal: live progress, a table in the end, JSON for machines and for CI."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from core import console
from core.console.live import Step
from core.console.units import counted, duration
from core.errors import UsageError
from deploy.matrix import pages
from deploy.matrix.model import CellResult, Impossible, Matrix
from deploy.matrix.plan import Cell, Plan, named, quoted

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_JOBS = 256
"""Jobs that GitHub Actions makes of one matrix at most."""


class Live:
    """Progress on stderr: a bar over all cells and a line for each busy device; without a terminal, a line per cell."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._all = console.begin("matrix", announce=False)
        self._all.count(0, total)
        self._devices: dict[str, Step] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for step in (*self._devices.values(), self._all):
            step.end()

    def preparing(self, what: str) -> None:
        """Show that a build or an export begins; it has a display of its own."""
        console.note(f"matrix: {what}")

    def working(self, device: str, what: str) -> None:
        """Show what a device is doing."""
        if device not in self._devices:
            self._devices[device] = console.begin(device, announce=False)
        self._devices[device].now(what)

    def finished(self, cell: CellResult) -> None:
        """Show that a cell is filled, or will not be."""
        self._all.one()
        if (step := self._devices.pop(cell.device, None)) is not None:
            step.end()
        again = ", kept from before" if cell.reused else ""
        time = f"p50 {duration(cell.latency.p50)}" if cell.latency else "emulated"
        problem = f": {cell.problem.what}" if cell.problem else f" ({time}{again})"
        console.note(f"[{self._all.done}/{self._total}] {cell.key} {pages.MARKS[cell.outcome]}{problem}")


def report(found: Matrix, folder: Path, as_json: bool = False) -> None:
    """Print a matrix."""
    if as_json:
        console.print_json({**json.loads(found.model_dump_json()), "folder": str(folder)})
        return
    cells, *others = pages.views(found)
    title = f"Matrix {found.name}" + (f": {found.only}" if found.only else "")
    report = console.shown(folder / "report.html")
    console.table(title, cells.heads, cells.rows, f"{cells.caption} {report}", optional=("peak RSS", "size", "p90"))
    for view in others:
        if view.rows:
            console.table(view.title, view.heads, view.rows, view.caption)
        else:
            console.say(f"{view.title}: {view.caption}.")


def planned(plan: Plan, as_json: bool = False) -> None:
    """Print the cells that would run, and the impossible ones."""
    if as_json:
        facts = [Impossible.of(cell).model_dump(exclude={"why"}) for cell in plan.cells]
        cells = [{**each, "emulated": cell.device.emulated} for each, cell in zip(facts, plan.cells, strict=True)]
        console.print_json(
            {
                "cells": cells,
                "impossible": [Impossible.of(cell).model_dump() for cell in plan.impossible],
            }
        )
        return
    counts = (("cell", plan.cells), ("bundle", plan.bundles), ("program", plan.programs))
    console.table(
        "To be run",
        ["device", "target", "engine", "program"],
        [[cell.device.name, cell.target, cell.engine, cell.program.name] for cell in plan.cells],
        ", ".join(counted(len(those), word) for word, those in counts),
    )
    if plan.impossible:
        console.table("Impossible", ["cells", "why"], [[named(keys), why] for why, keys in plan.reasons().items()])


def print_matrix(plan: Plan) -> None:
    """Print ``{"include": [...]}`` for GitHub Actions' ``fromJson``: a job for each device, target and engine.

    Raises:
        UsageError: more jobs than GitHub allows.
    """
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in plan.cells:
        groups.setdefault((cell.device.name, cell.target, cell.engine), []).append(cell)
    if len(groups) > MOST_JOBS:
        raise UsageError(
            f"The matrix would have {len(groups)} jobs; GitHub allows {MOST_JOBS}.", "", "narrow it with --only"
        )
    include = [_job(*names, cells) for names, cells in groups.items()]
    sys.stdout.write(json.dumps({"include": include}, separators=(",", ":")) + "\n")


def _job(device: str, target: str, engine: str, cells: Sequence[Cell]) -> dict[str, Any]:
    programs = " | ".join(quoted("program", cell.program.name) for cell in cells)
    return {
        "name": f"{device}-{target}-{engine}",
        "device": device,
        "target": target,
        "engine": engine,
        "emulated": cells[0].device.emulated,
        "only": f"{quoted('device', device)} & {quoted('target', target)} & {quoted('engine', engine)} & ({programs})",
        "cells": len(cells),
    }
