"""Fill the lab's cells: on each device, every layer two ways in turns, round by round. Devices run in parallel."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.matrix.devices import Runner, Worker
from deploy.matrix.model import Problem
from deploy.matrix.significance import compare, percentile
from deploy.run.engine_flags import LEAN
from deploy.run.needs import bundle_digest
from deploy.run.result import Result
from deploy.run.settings import Settings
from verify.layers.families import Layer
from verify.layers.model import Instructions, LayerCell, Matched, State, Used, Way
from verify.layers.operators import matched
from verify.layers.ways import Choice, Pair
from verify.layers.words import why

TRIAL = 10
"""Executions of the run that finds out how many a process needs; with the profile on."""
PROFILED = 50
"""Least executions of the process that measures operators: fewer say little of p10 and p90."""
AIM_MS = 30.0
"""What a process computes for, about."""
_LEAST, _MOST = 5, 2000
_WARMUP, _EMULATED_WARMUP = 3, 1
COUNTED = 5
"""Executions whose instructions an emulated device counts, after the warm-up."""


@dataclass(frozen=True)
class Todo:
    """A cell to fill: a program on a device."""

    cell: LayerCell
    device: Device
    layer: Layer | None
    pair: Pair
    program: Path


@dataclass
class LayerRunner(Runner[Todo, LayerCell]):
    """A lab that is being filled."""

    todo: Sequence[Todo]
    bundles: Mapping[tuple[str, str], Bundle]
    rounds: int
    settings: Settings
    told: Callable[[LayerCell, int], None] = lambda _cell, _left: None

    def go(self) -> None:
        """Fill all; Ctrl-C ends every deploy, waits for it, and is raised again."""
        self.run_all(each for each in self.todo if not self._known(each))

    def _known(self, todo: Todo) -> bool:
        """Whether the journal has the cell already."""
        found = self.journal.find(todo.cell.key, self._inputs(todo)) if self.resume else None
        if found is None or found.outcome != "measured":
            return False
        self.results[todo.cell.key] = found.model_copy(update={"reused": True})
        return True

    def all(self, cells: Sequence[LayerCell]) -> tuple[LayerCell, ...]:
        """``cells`` with the results so far."""
        return tuple(self.results.get(cell.key, cell) for cell in cells)

    def _inputs(self, todo: Todo) -> str:
        """Digest of everything that decides a cell's result."""
        facts = {
            "bundles": [
                bundle_digest(self.bundles[todo.cell.target, way.engine]) for way in (todo.pair.first, todo.pair.second)
            ],
            "ways": repr(todo.pair), "rounds": self.rounds, "settings": self.settings.model_dump(mode="json"),
            "program": hashlib.sha256((todo.program / "program.json").read_bytes()).hexdigest(),
            "device": todo.device.model_dump(mode="json"),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def serve(self, worker: Worker, items: Sequence[Todo]) -> None:
        """Each cell with all its rounds."""
        for todo in items:
            if self._over or (filled := self._fill(worker, todo)) is None:
                return
            self.keep(filled)
            self.told(filled, len(self.todo) - len(self.results))

    def _fill(self, worker: Worker, todo: Todo) -> LayerCell | None:
        """Run a cell; ``None`` if that was interrupted."""
        ways = (todo.pair.first, todo.pair.second)
        runs: dict[Choice, list[Result]] = {way: [] for way in ways}
        trials: dict[Choice, Result] = {}
        plain: dict[Choice, Result] = {}
        cell = todo.cell.model_copy(update={"inputs": self._inputs(todo)})
        emulated = todo.device.emulated

        def failed(problem: Problem) -> LayerCell:
            return cell.model_copy(update={"outcome": "failed", "problem": problem})

        for way in ways:
            for profile in _profiles(todo, way):
                said = self._run(worker, todo, way, COUNTED if emulated else TRIAL, profile=profile)
                if not isinstance(said, Result):
                    return failed(said) if said is not None else None
                trials.setdefault(way, said)
                plain[way] = said
        if not emulated:
            slowest = max(trial.runner.latency_ms.min for trial in trials.values())
            executions = max(_LEAST, min(_MOST, math.ceil(AIM_MS / max(slowest, 1e-4))))
            for way in ways:
                said = self._run(worker, todo, way, max(PROFILED, executions), profile=True)
                if not isinstance(said, Result):
                    return failed(said) if said is not None else None
                trials[way] = said
            order = random.Random(cell.key)  # noqa: S311 - which way comes first in a round
            for _ in range(self.rounds):
                for way in order.sample(ways, 2):
                    said = self._run(worker, todo, way, executions, profile=False)
                    if not isinstance(said, Result):
                        return failed(said) if said is not None else None
                    runs[way].append(said)
        found = [_way(way, trials[way], plain[way], runs[way], todo) for way in ways]
        results = [*trials.values(), *(run for way in ways for run in runs[way])]
        operators = () if emulated else matched(*(trials[way].runner.profile for way in ways))
        return _filled(cell, found, results, operators)

    def _run(
        self, worker: Worker, todo: Todo, way: Choice, executions: int, *, profile: bool
    ) -> Result | Problem | None:
        emulated = todo.device.emulated
        settings = self.settings.model_copy(
            update={
                "kleidiai": way.kleidiai,
                "cpu_features": way.cpu_features,
                "num_executions": executions,
                "warmup": _EMULATED_WARMUP if emulated else _WARMUP,
                "engine_flags": ("--profile",) if profile else ("--count_instructions",) if emulated else (),
            }
        )
        for said in worker.run(todo.device, self.bundles[todo.cell.target, way.engine], todo.program, settings):
            if not isinstance(said, str):
                return said
        return None


def _profiles(todo: Todo, way: Choice) -> tuple[bool, ...]:
    """Whether the profile is on, for each run before the rounds.

    It costs instructions, so they are counted without it; and an engine that names its kernels itself needs none.
    """
    if not todo.device.emulated:
        return (True,)
    return (False,) if way.engine == LEAN else (True, False)


def _filled(
    cell: LayerCell, found: Sequence[Way], results: Sequence[Result], operators: tuple[Matched, ...]
) -> LayerCell:
    kernels = [[(used.node, used.kernel) for used in way.kernels] for way in found]
    update: dict[str, object] = {
        "outcome": "measured",
        "first": found[0],
        "second": found[1],
        "same_kernels": bool(kernels[0]) and kernels[0] == kernels[1],
        "same_outputs": found[0].outputs == found[1].outputs,
        "state": _state(results),
        "instructions": _instructions_ratio(*found),
        "operators": operators,
    }
    if len(found[0].processes) > 1:
        compared = compare(found[0].processes, found[1].processes)
        update |= {
            "ratio": compared.ratio, "low": compared.low, "high": compared.high, "p": compared.p,
            "compared": compared.verdict,
        }  # fmt: skip
    return cell.model_copy(update=update)


def _instructions_ratio(first: Way, second: Way) -> float | None:
    if first.instructions is None or second.instructions is None or not second.instructions.least:
        return None
    return first.instructions.least / second.instructions.least


def counted(result: Result) -> Instructions | None:
    """What the device counted in a run."""
    if result.runner.instructions is None:
        return None
    counts = sorted(result.runner.instructions.all)
    return Instructions(
        median=counts[len(counts) // 2], least=counts[0], most=counts[-1], executions=len(counts)
    )  # fmt: skip


def _way(way: Choice, trial: Result, plain: Result, runs: Sequence[Result], todo: Todo) -> Way:
    runner = trial.runner
    errors = [output.max_abs for output in trial.outputs if output.max_abs is not None]
    every = [time for run in runs for time in run.runner.latency_ms.all]
    times: dict[str, object] = {}
    if every:
        middle = percentile(every, 0.5)
        times = {
            "processes": tuple(run.runner.latency_ms.p50 for run in runs),
            "executions": len(runs[0].runner.latency_ms.all),
            "p10": percentile(every, 0.1), "p50": middle, "p90": percentile(every, 0.9),
            "spread": (percentile(every, 0.9) - percentile(every, 0.1)) / middle,
            "load_ms": percentile([run.runner.load_ms for run in runs], 0.5),
        }  # fmt: skip
        if todo.layer is not None:
            times |= {
                "gflops": todo.layer.operations / middle / 1e6,
                "gbytes_per_s": todo.layer.bytes_moved(todo.cell.scheme) / middle / 1e6,
            }
    return Way.model_validate(
        {
            "name": way.name, "engine": way.engine, "settings": runner.settings,
            "kernels": [Used(node=use.node, kernel=use.kernel, library=use.library) for use in runner.kernels],
            "known_from": "the engine" if way.engine == "lean" else "the profile's names",
            "instructions": counted(plain), "verdict": trial.verdict, "max_abs": max(errors, default=None),
            "outputs": tuple(output.sha256 for output in runner.outputs), **times,
        }
    )  # fmt: skip


def _state(results: Sequence[Result]) -> State:
    states = [each.conditions for each in results]
    warmest = [
        value for one in states for value in (*one.before.temperatures_c.values(), *one.after.temperatures_c.values())
    ]
    return State(
        governors=tuple(dict.fromkeys(name for one in states for name in one.before.governors)),
        warmest=max(warmest, default=None),
        load=states[0].before.load1 if states else None,
        throttled=tuple(dict.fromkeys(sign for one in states for sign in one.throttled)),
    )


def say(cell: LayerCell, left: int) -> None:
    """A line for a cell that is done."""
    if cell.problem is not None:
        what = f"failed: {cell.problem.what}"
    elif cell.differing:
        what = why(cell)
    elif cell.ratio is not None:
        what = f"{cell.compared}, {cell.ratio:.3f} of the time [{cell.low:.3f}, {cell.high:.3f}]"
    else:
        what = "the same kernels" if cell.same_kernels else "other kernels"
        what += f", {cell.instructions:.3f} of the instructions" if cell.instructions is not None else ""
    console.note(f"{cell.key}: {what} ({left} left)")
