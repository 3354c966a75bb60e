"""The matrix on the terminal: live progress, a table in the end, JSON for machines and for CI."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from core import console
from core.console.live import Step
from core.console.units import counted, duration
from core.errors import UsageError
from deploy.matrix.model import CellResult, Matrix, exact
from deploy.matrix.plan import Cell, Plan, quoted

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_JOBS = 256
"""Jobs that GitHub Actions makes of one matrix at most."""
_MARKS = {"passed": "passed", "differs": "DIFFERS", "failed": "FAILED", "not run": "not run"}


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
        problem = f": {cell.problem.what}" if cell.problem else f" ({_time(cell)}{again})"
        console.note(f"[{self._all.done}/{self._total}] {cell.key} {_MARKS[cell.outcome]}{problem}")


def report(found: Matrix, folder: Path, as_json: bool = False) -> None:
    """Print a matrix."""
    if as_json:
        console.print_json({**json.loads(found.model_dump_json()), "folder": str(folder)})
        return
    columns = {
        "device": [cell.device for cell in found.cells],
        "engine": [f"{cell.engine}\n{cell.target}" for cell in found.cells],
        "program": [cell.program for cell in found.cells],
        "outcome": [_MARKS[cell.outcome] + (" (kept)" if cell.reused else "") for cell in found.cells],
        "latency p50, p90": [_latency(cell) for cell in found.cells],
        "emulated time": [duration(cell.emulated_time.p50) if cell.emulated_time else "" for cell in found.cells],
        "tokens/s": [_pace(cell) for cell in found.cells],
        "max error": ["" if cell.max_abs is None else f"{cell.max_abs:.3g}" for cell in found.cells],
    }
    times = ("latency p50, p90", "emulated time", "tokens/s")
    columns = {head: values for head, values in columns.items() if head not in times or any(values)}
    console.table(
        f"Matrix {found.name}" + (f": {found.only}" if found.only else ""),
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        _caption(found, folder),
    )
    if found.impossible:
        cells = Counter((cell.device, f"{cell.engine} on {cell.target}", cell.why) for cell in found.impossible)
        console.table(
            "Impossible",
            ["device", "engine", "cells", "why"],
            [[device, engine, str(count), why] for (device, engine, why), count in cells.items()],
        )
    shown = [change for change in found.changes if change.verdict in {"worse", "better", "cannot tell"}]
    if found.baseline:
        out = Counter(change.why for change in found.changes if change.verdict == "not compared")
        left = [f"{count} not compared: {why}" for why, count in out.items()]
        count = sum(change.verdict == "same" for change in found.changes)
        same = "; ".join([f"{counted(count, 'figure')} the same", *left])
        if not shown:
            console.say(f"Against {found.baseline}: {same}.")
            return
        console.table(
            f"Against {found.baseline}",
            ["cell", "figure", "before", "now", "ratio", "verdict"],
            [
                [
                    each.key,
                    each.what,
                    exact(each.before),
                    exact(each.now),
                    f"{each.ratio:.2f}" if each.ratio else "–",
                    f"{each.verdict}: {each.why}" if each.why else each.verdict,
                ]
                for each in shown
            ],
            same,
        )


def _latency(cell: CellResult) -> str:
    if cell.latency is None:
        return ""
    return f"{duration(cell.latency.p50)}, {duration(cell.latency.p90)}" + (" throttled" if cell.throttled else "")


def _pace(cell: CellResult) -> str:
    return ", ".join(f"{name} {each:.1f}" for name, each in cell.pace.items())


def _time(cell: CellResult) -> str:
    if cell.latency:
        return f"p50 {duration(cell.latency.p50)}"
    return "emulated"


def _caption(found: Matrix, folder: Path) -> str:
    counts = Counter(cell.outcome for cell in found.cells)
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    kept = sum(cell.reused for cell in found.cells)
    emulated = " Emulated times say nothing about speed." * any(cell.emulated_time for cell in found.cells)
    return (
        f"{words}{f' ({kept} kept from before)' if kept else ''} in {found.took}.{emulated} "
        f"{console.shown(folder / 'report.html')}"
    )


def planned(plan: Plan, as_json: bool = False) -> None:
    """Print the cells that would run, and the impossible ones."""
    if as_json:
        console.print_json(
            {
                "cells": [_entry(cell) for cell in plan.cells],
                "impossible": [{**_entry(cell), "why": cell.why_not} for cell in plan.impossible],
            }
        )
        return
    console.table(
        "To be run",
        ["device", "target", "engine", "program"],
        [[cell.device.name, cell.target, cell.engine, cell.program.name] for cell in plan.cells],
        ", ".join(
            (
                counted(len(plan.cells), "cell"),
                counted(len(plan.bundles), "bundle"),
                counted(len(plan.programs), "program"),
            )
        ),
    )
    if plan.impossible:
        rows = [[what, str(count), why] for what, why, count in plan.reasons()]
        console.table("Impossible", ["what", "cells", "why"], rows)


def _entry(cell: Cell) -> dict[str, Any]:
    return {
        "key": cell.key, "device": cell.device.name, "target": cell.target, "engine": cell.engine,
        "program": cell.program.name, "emulated": cell.device.emulated,
    }  # fmt: skip


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
