"""Fill a matrix: every bundle built once, every program exported once, then the devices in parallel.

A finished cell is in the journal (`core.processes.sweep`) at once, so that an interrupted matrix can continue.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from core.console.units import counted
from core.errors import SlipwayError
from core.formats.bundle import Bundle
from deploy.matrix.devices import Runner, Worker
from deploy.matrix.model import CellResult, Problem, filled, inputs_of, joined, unfilled
from deploy.matrix.people import AWAY
from deploy.matrix.plan import Cell, Exportable, Plan
from deploy.matrix.report import Live
from deploy.run.result import Result
from deploy.run.settings import Prompt, Settings

Build = Callable[[str, str], Bundle]
"""Gives the bundle of a target and an engine."""


class Language(Protocol):
    """What only language models need, and `models` has."""

    def prompt(self, program: Path) -> Prompt:
        """What the program reads, and how much it writes."""

    def judged(self, found: Result, program: Path) -> Result:
        """The result with what upstream's runtime on this machine says of it."""


Export = Callable[[Sequence[Exportable]], Mapping[Exportable, "Path | SlipwayError"]]
"""Gives the folder of each program, or the error with which its export ended."""

JOURNAL = "cells.jsonl"
_ENOUGH = 2
"""Consecutive cells that may fail with one of those before the device's remaining cells are given up."""


@dataclass
class Filling(Runner[Cell, CellResult]):
    """A matrix that is being filled."""

    plan: Plan
    build: Build
    export: Export
    watcher: Live
    """Is told what goes on, from several threads."""
    settings: Callable[[Cell], Settings]
    """The settings of a cell's deploy."""
    language: Language | None = None
    """What the cells of language models need besides; ``None``: there are none."""
    rounds: int = 1
    """Processes of each cell on a real device; the rounds of a device's cells take turns, in random order."""
    _bundles: dict[tuple[str, str], Bundle | Problem] = field(default_factory=dict)
    _programs: dict[Exportable, Path | Problem] = field(default_factory=dict)

    def go(self) -> None:
        """Fill it. If it ends early (by Ctrl-C too), every deploy is ended and waited for.

        If a build, an export or a deploy fails, its cells say so; no error is raised for it.
        """
        if not self.resume:
            self.journal.forget()
        self._prepare()
        self.run_all(
            cell
            for cell in self.plan.cells
            if cell.key not in self.results and (not self._known(cell) or self._lacks_rounds(cell))
        )

    def all(self) -> tuple[CellResult, ...]:
        """Every cell of the plan in its order, with its result so far."""
        return tuple(self.results.get(cell.key) or unfilled(cell) for cell in self.plan.cells)

    def _prepare(self) -> None:
        for target, engine in self.plan.bundles:
            self.watcher.preparing(f"bundle {engine} for {target}")
            self._bundles[target, engine] = _or_problem(partial(self.build, target, engine))
        self.watcher.preparing(counted(len(self.plan.programs), "program"))
        for program, made in self.export(self.plan.programs).items():
            self._programs[program] = Problem.of(made) if isinstance(made, SlipwayError) else made
        for cell in self.plan.cells:
            for part in (self._bundles[cell.target, cell.engine], self._programs[cell.program]):
                if isinstance(part, Problem):
                    self._finish(unfilled(cell, "failed", part))
                    break

    def _parts(self, cell: Cell) -> tuple[Bundle, Path]:
        bundle, path = self._bundles[cell.target, cell.engine], self._programs[cell.program]
        if isinstance(bundle, Problem) or isinstance(path, Problem):
            raise TypeError(cell.key)  # such cells are finished before they get here
        return bundle, path

    def _settings(self, cell: Cell, path: Path) -> Settings:
        settings = self.settings(cell)
        if self.language is None or not cell.program.text:
            return settings
        return settings.model_copy(update={"text": self.language.prompt(path)})

    def _known(self, cell: Cell) -> bool:
        """Whether the journal has the cell already; a program that cannot be read fails here."""
        bundle, path = self._parts(cell)
        inputs = _or_problem(partial(inputs_of, cell, bundle, path, self._settings(cell, path)))
        if isinstance(inputs, Problem):
            self._finish(unfilled(cell, "failed", inputs))
            return True
        found = self.journal.find(cell.key, inputs) if self.resume else None
        if found is None or found.outcome != "passed" or (found.key, found.inputs) != (cell.key, inputs):
            return False
        self._finish(found.model_copy(update={"reused": True}))
        return True

    def _lacks_rounds(self, cell: Cell) -> bool:
        found = self.results.get(cell.key)
        if found is None or found.outcome != "passed" or found.latency is None:
            return False
        return len(found.rounds) < self.rounds

    def serve(self, worker: Worker, items: Sequence[Cell]) -> None:
        """Every cell once, then the further rounds."""
        self._all_of(worker, [cell for cell in items if cell.key not in self.results])
        self._more_rounds(worker, items)

    def _more_rounds(self, worker: Worker, cells: Sequence[Cell]) -> None:
        """Run the cells that passed again, in turns: what disturbs a device for a while then disturbs all of them."""
        while not self._over:
            short = [cell for cell in cells if self._lacks_rounds(cell)]
            if not short:
                return
            random.shuffle(short)
            for cell in short:
                known = self.results[cell.key]
                which = f"round {len(known.rounds) + 1} of {self.rounds}"
                again = self._run(worker, cell, which)
                if again is None or self._over:
                    return
                self.keep(joined(known, again))

    def _all_of(self, worker: Worker, cells: Sequence[Cell]) -> None:
        away: list[Problem] = []
        for cell in cells:
            if self._over:
                return
            if len(away) >= _ENOUGH:
                again = away[-1].model_copy(
                    update={"cause": f"not tried again after {_ENOUGH} cells: {away[-1].cause}"}
                )
                self._finish(unfilled(cell, "failed", again))
                continue
            result = self._deploy(worker, cell)
            if result is None:
                return
            gone = result.problem if result.problem and result.problem.error in AWAY else None
            away = [*away, gone] if gone else []

    def _deploy(self, worker: Worker, cell: Cell) -> CellResult | None:
        """Fill one cell; ``None`` when that was interrupted."""
        found = self._run(worker, cell)
        return None if found is None else self._finish(found)

    def _run(self, worker: Worker, cell: Cell, which: str = "") -> CellResult | None:
        """Deploy one cell; ``None`` when that was interrupted."""
        bundle, path = self._parts(cell)
        settings = self._settings(cell, path)
        inputs = inputs_of(cell, bundle, path, settings)
        label = f"{cell.program.name} on {cell.engine}" + (f", {which}" if which else "")
        self.watcher.working(cell.device.name, label)
        for said in worker.run(cell.device, bundle, path, settings):
            if isinstance(said, Result):
                found = self.language.judged(said, path) if self.language and cell.program.text else said
                return filled(cell, bundle, found, inputs)
            if isinstance(said, Problem):
                return unfilled(cell, "failed", said, inputs=inputs)
            self.watcher.working(cell.device.name, f"{label}: {said}")
        return None

    def _finish(self, cell: CellResult) -> CellResult:
        self.keep(cell)
        with self._lock:
            self.watcher.finished(cell)
        return cell


def _or_problem(make: Callable[[], Any]) -> Any:
    """The result of ``make``, or the foreseen error that it raised."""
    try:
        return make()
    except SlipwayError as error:
        return Problem.of(error)
