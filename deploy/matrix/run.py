"""Fill a matrix: every bundle built once, every program exported once, then the devices in parallel.

A finished cell is in the journal (`core.processes.sweep`) at once, so that an interrupted matrix can continue.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from core.console.units import counted
from core.errors import SlipwayError
from core.formats.bundle import Bundle
from core.processes.sweep import Journal
from deploy.devices.inventory import Device
from deploy.matrix.devices import CLEANUP, Worker
from deploy.matrix.model import AWAY, CellResult, Problem, filled, inputs_of, joined, unfilled
from deploy.matrix.plan import Cell, Exportable, Plan, grouped
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


class Made(NamedTuple):
    """What a cell runs."""

    device: Device
    bundle: Bundle
    path: Path
    settings: Settings
    inputs: str
    """Digest of everything that decides the result."""


@dataclass
class Filling:
    """A matrix that is being filled. `results` is valid at any moment: a missing cell was not run."""

    plan: Plan
    build: Build
    export: Export
    watcher: Live
    """Is told what goes on, from several threads."""
    settings: Callable[[Cell], Settings]
    journal: Journal[CellResult]
    language: Language | None = None
    rounds: int = 1
    """Processes of each cell on a real device; the rounds of a device's cells take turns, in random order."""
    resume: bool = False
    jobs: int = 2
    """Devices at once."""
    results: dict[str, CellResult] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    """What can be run, by the cell's key."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: bool = False
    """Nothing new begins."""

    def go(self) -> None:
        """Fill it. If it ends early (by Ctrl-C too), every deploy is ended and waited for.

        If a build, an export or a deploy fails, its cells say so; no error is raised for it.
        """
        if not self.resume:
            self.journal.forget()
        self._prepare()
        self._run_all(cell for cell in self.plan.cells if cell.key not in self.results or self._lacks_rounds(cell))

    def all(self) -> tuple[CellResult, ...]:
        """Every cell of the plan in its order, with its result so far."""
        return tuple(self.results.get(cell.key) or unfilled(cell) for cell in self.plan.cells)

    def _prepare(self) -> None:
        """Build and export; finish the cells for which that failed, and those that the journal has already."""
        bundles: dict[tuple[str, str], Bundle | SlipwayError] = {}
        for target, engine in self.plan.bundles:
            self.watcher.preparing(f"bundle {engine} for {target}")
            try:
                bundles[target, engine] = self.build(target, engine)
            except SlipwayError as error:
                bundles[target, engine] = error
        self.watcher.preparing(counted(len(self.plan.programs), "program"))
        programs = self.export(self.plan.programs)
        for cell in self.plan.cells:
            try:
                made = self._cell(cell, bundles[cell.target, cell.engine], programs[cell.program])
            except SlipwayError as error:
                self._finish(unfilled(cell, "failed", Problem.of(error)))
                continue
            self.made[cell.key] = made
            kept = self.journal.find(cell.key, made.inputs) if self.resume else None
            if kept is not None and kept.outcome == "passed":
                self._finish(kept.model_copy(update={"reused": True}))

    def _cell(self, cell: Cell, bundle: Bundle | SlipwayError, path: Path | SlipwayError) -> Made:
        if isinstance(bundle, SlipwayError):
            raise bundle
        if isinstance(path, SlipwayError):
            raise path
        settings = self.settings(cell)
        if self.language and cell.program.text:
            settings = settings.model_copy(update={"text": self.language.prompt(path)})
        return Made(cell.device, bundle, path, settings, inputs_of(cell, bundle, path, settings))

    def _lacks_rounds(self, cell: Cell) -> bool:
        found = self.results.get(cell.key)
        return bool(found and found.outcome == "passed" and found.latency and len(found.rounds) < self.rounds)

    def _serve(self, worker: Worker, cells: Sequence[Cell]) -> None:
        """Every cell of a device once, then the further rounds."""
        try:
            self._all_of(worker, [cell for cell in cells if cell.key not in self.results])
            self._more_rounds(worker, cells)
        finally:
            worker.close()

    def _all_of(self, worker: Worker, cells: Sequence[Cell]) -> None:
        away: list[Problem] = []
        for cell in cells:
            if self._over:
                return
            if len(away) >= _ENOUGH:
                cause = f"not tried again after {_ENOUGH} cells: {away[-1].cause}"
                self._finish(unfilled(cell, "failed", away[-1].model_copy(update={"cause": cause})))
                continue
            result = self._run(worker, cell)
            if result is None:
                return
            self._finish(result)
            gone = result.problem if result.problem and result.problem.error in AWAY else None
            away = [*away, gone] if gone else []

    def _more_rounds(self, worker: Worker, cells: Sequence[Cell]) -> None:
        """Run the cells that passed again, in turns: what disturbs a device for a while then disturbs all of them."""
        while not self._over and (short := [cell for cell in cells if self._lacks_rounds(cell)]):
            random.shuffle(short)
            for cell in short:
                known = self.results[cell.key]
                again = self._run(worker, cell, f", round {len(known.rounds) + 1} of {self.rounds}")
                if again is None or self._over:
                    return
                self._keep(joined(known, again))

    def _run(self, worker: Worker, cell: Cell, which: str = "") -> CellResult | None:
        """Deploy one cell; ``None`` when that was interrupted."""
        device, bundle, path, settings, inputs = self.made[cell.key]
        label = f"{cell.program.name} on {cell.engine}{which}"
        self.watcher.working(device.name, label)
        for said in worker.run(device, bundle, path, settings):
            if isinstance(said, Result):
                found = self.language.judged(said, path) if self.language and cell.program.text else said
                return filled(cell, bundle, found, inputs)
            if isinstance(said, Problem):
                return unfilled(cell, "failed", said, inputs=inputs)
            self.watcher.working(device.name, f"{label}: {said}")
        return None

    def _finish(self, cell: CellResult) -> None:
        self._keep(cell)
        with self._lock:
            self.watcher.finished(cell)

    def _keep(self, cell: CellResult) -> None:
        with self._lock:
            self.journal.keep(cell.key, cell.inputs, cell)
            self.results[cell.key] = cell

    def _run_all(self, cells: Iterable[Cell]) -> None:
        """Serve each device's cells by a worker of its own, several devices at once.

        If one of them raises, or at Ctrl-C, every deploy is interrupted, and killed if it does not end within
        `CLEANUP`; then the exception is raised again.
        """
        queues = grouped((cell.device.name, cell) for cell in cells)
        # This machine's own times are measured while no emulator and no other deploy keeps it busy.
        for name in [name for name, queue in queues.items() if queue[0].device.measured_here]:
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
