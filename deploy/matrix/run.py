"""Fill a matrix: every bundle built once, every program exported once, then the devices in parallel.

A finished cell is in the journal (`core.processes.sweep`) at once, so that an interrupted matrix can continue.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from core.console.units import counted
from core.errors import SlipwayError
from core.formats.bundle import Bundle
from core.processes.sweep import Journal
from deploy.matrix.devices import CLEANUP, Worker
from deploy.matrix.model import AWAY, CellResult, Problem, filled, inputs_of, joined, unfilled
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
class Filling:
    """A matrix that is being filled. `results` is valid at any moment: a missing cell was not run."""

    plan: Plan
    build: Build
    export: Export
    watcher: Live
    """Is told what goes on, from several threads."""
    settings: Callable[[Cell], Settings]
    """The settings of a cell's deploy."""
    journal: Journal[CellResult]
    """Has each cell as soon as it is finished, so that what was interrupted can continue."""
    language: Language | None = None
    """What the cells of language models need besides; ``None``: there are none."""
    rounds: int = 1
    """Processes of each cell on a real device; the rounds of a device's cells take turns, in random order."""
    resume: bool = False
    jobs: int = 2
    """Devices at once."""
    results: dict[str, CellResult] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: bool = False
    """Nothing new begins."""
    _bundles: dict[tuple[str, str], Bundle | Problem] = field(default_factory=dict)
    _programs: dict[Exportable, Path | Problem] = field(default_factory=dict)

    def go(self) -> None:
        """Fill it. If it ends early (by Ctrl-C too), every deploy is ended and waited for.

        If a build, an export or a deploy fails, its cells say so; no error is raised for it.
        """
        if not self.resume:
            self.journal.forget()
        self._prepare()
        self._run_all(
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

    def _serve(self, worker: Worker, cells: Sequence[Cell]) -> None:
        """Every cell of a device once, then the further rounds."""
        try:
            self._all_of(worker, [cell for cell in cells if cell.key not in self.results])
            self._more_rounds(worker, cells)
        finally:
            worker.close()

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
                self._keep(joined(known, again))

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
        self._keep(cell)
        with self._lock:
            self.watcher.finished(cell)
        return cell

    def _keep(self, cell: CellResult) -> None:
        with self._lock:
            self.journal.keep(cell.key, cell.inputs, cell)
            self.results[cell.key] = cell

    def _run_all(self, cells: Iterable[Cell]) -> None:
        """Serve each device's cells by a worker of its own, several devices at once.

        If one of them raises, or at Ctrl-C, every deploy is interrupted, and killed if it does not end within
        `CLEANUP`; then the exception is raised again.
        """
        queues: dict[str, list[Cell]] = {}
        for cell in cells:
            queues.setdefault(cell.device.name, []).append(cell)
        # This machine's own times are measured while no emulator and no other deploy keeps it busy.
        alone = {name: queue for name, queue in queues.items() if queue[0].device.measured_here}
        for name in alone:
            self._together({name: queues.pop(name)})
        self._together(queues)

    def _together(self, queues: Mapping[str, Sequence[Cell]]) -> None:
        if not queues:
            return
        workers = {name: Worker(name) for name in queues}
        with ThreadPoolExecutor(max_workers=min(self.jobs, len(queues))) as pool:
            running = {pool.submit(self._serve, workers[name], queue) for name, queue in queues.items()}
            try:
                left = running
                while left:  # short waits: Ctrl-C is heard between them on every system
                    done, left = wait(left, timeout=0.2)
                    for each in done:
                        each.result()
            except BaseException:
                self._over = True
                for worker in workers.values():
                    worker.interrupt()
                try:
                    wait(running, timeout=CLEANUP)
                finally:
                    for worker in workers.values():
                        worker.kill()
                raise


def _or_problem(make: Callable[[], Any]) -> Any:
    """The result of ``make``, or the foreseen error that it raised."""
    try:
        return make()
    except SlipwayError as error:
        return Problem.of(error)
