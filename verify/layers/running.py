"""Fill the lab's cells: on each device, every layer two ways in turns, round by round. Devices run in parallel."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
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
from verify.layers.model import Instructions, LayerCell, State, Used, Way
from verify.layers.ways import Choice, Pair

TRIAL = 10
"""Executions of the run that finds out how many a process needs."""
AIM_MS = 30.0
"""What a process computes for, about."""
_LEAST, _MOST = 5, 2000
_WARMUP, _EMULATED_WARMUP = 3, 1
COUNTED = 5
"""Executions whose instructions an emulated device counts, after the warm-up."""
_PROFILE = ("--profile",)
"""An engine that does not name its kernels names them with it. It costs time and instructions."""


class _Ended(Exception):  # noqa: N818 - it ends a cell
    """A run failed, or was interrupted."""

    def __init__(self, problem: Problem | None) -> None:
        super().__init__()
        self.problem = problem


@dataclass(frozen=True)
class Todo:
    """A cell to fill: a program on a device."""

    cell: LayerCell
    device: Device
    pair: Pair
    program: Path


@dataclass
class LayerRunner(Runner[Todo, LayerCell]):
    """A lab that is being filled."""

    todo: Sequence[Todo]
    bundles: Mapping[tuple[str, str], Bundle]
    rounds: int
    settings: Settings

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

    def _inputs(self, todo: Todo) -> str:
        """Digest of everything that decides a cell's result."""
        facts = {
            "bundles": [bundle_digest(self.bundles[todo.cell.target, way.engine]) for way in todo.pair.ways],
            "ways": repr(todo.pair), "rounds": self.rounds, "settings": self.settings.model_dump(mode="json"),
            "program": hashlib.sha256((todo.program / "program.json").read_bytes()).hexdigest(),
            "device": todo.device.model_dump(mode="json"),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def serve(self, worker: Worker, items: Sequence[Todo]) -> None:
        """Each cell with all its rounds."""
        for todo in items:
            if self._over:
                return
            cell = todo.cell.model_copy(update={"inputs": self._inputs(todo)})
            try:
                filled = self._fill(worker, todo, cell)
            except _Ended as ended:
                if ended.problem is None:
                    return
                filled = cell.model_copy(update={"outcome": "failed", "problem": ended.problem})
            self.keep(filled)
            left = len(self.todo) - len(self.results)
            ratio = f", {_number(filled.instructions)} of the instructions" if filled.instructions else ""
            ratio = f", {_number(filled.ratio)} of the time" if filled.ratio else ratio
            console.note(f"{filled.key}: {filled.why or filled.answer}{ratio} ({left} left)")

    def _fill(self, worker: Worker, todo: Todo, cell: LayerCell) -> LayerCell:
        emulated = todo.device.emulated
        few, counting = (COUNTED, ("--count_instructions",)) if emulated else (TRIAL, ())
        trials: dict[Choice, list[Result]] = {}
        for way in todo.pair.ways:
            flags = [counting] if way.engine == LEAN else [_PROFILE, counting]
            trials[way] = [self._run(worker, todo, way, few, each) for each in flags]
        runs: dict[Choice, list[Result]] = {way: [] for way in todo.pair.ways}
        if not emulated:
            slowest = max(trial[-1].runner.latency_ms.min for trial in trials.values())
            executions = max(_LEAST, min(_MOST, math.ceil(AIM_MS / max(slowest, 1e-4))))
            order = random.Random(cell.key)  # noqa: S311 - which way comes first in a round
            for _ in range(self.rounds):
                for way in order.sample(todo.pair.ways, 2):
                    runs[way].append(self._run(worker, todo, way, executions))
        first, second = (_way(way, trials[way], runs[way]) for way in todo.pair.ways)
        kernels = [[(used.node, used.kernel) for used in way.kernels] for way in (first, second)]
        update: dict[str, object] = {
            "outcome": "measured", "first": first, "second": second,
            "same_kernels": bool(kernels[0]) and kernels[0] == kernels[1],
            "same_outputs": first.outputs == second.outputs,
            "state": _state([one for each in (*trials.values(), *runs.values()) for one in each]),
        }  # fmt: skip
        if first.instructions and second.instructions and second.instructions.least:
            update["instructions"] = first.instructions.least / second.instructions.least
        if len(first.processes) > 1:
            seen = compare(first.processes, second.processes)
            update |= {"ratio": seen.ratio, "low": seen.low, "high": seen.high, "p": seen.p, "compared": seen.verdict}
        return cell.model_copy(update=update)

    def _run(self, worker: Worker, todo: Todo, way: Choice, executions: int, flags: tuple[str, ...] = ()) -> Result:
        settings = self.settings.model_copy(
            update={
                "kleidiai": way.kleidiai,
                "cpu_features": way.cpu_features,
                "num_executions": executions,
                "warmup": _EMULATED_WARMUP if todo.device.emulated else _WARMUP,
                "engine_flags": flags,
            }
        )
        for said in worker.run(todo.device, self.bundles[todo.cell.target, way.engine], todo.program, settings):
            if isinstance(said, Result):
                return said
            if isinstance(said, Problem):
                raise _Ended(said)
        raise _Ended(None)


def _number(value: float) -> str:
    return f"{value:.3f}"


def counted(result: Result) -> Instructions | None:
    """What the device counted in a run."""
    if result.runner.instructions is None:
        return None
    counts = sorted(result.runner.instructions.all)
    return Instructions(median=counts[len(counts) // 2], least=counts[0], most=counts[-1], executions=len(counts))


def _way(way: Choice, trials: Sequence[Result], runs: Sequence[Result]) -> Way:
    runner = trials[0].runner
    every = [time for run in runs for time in run.runner.latency_ms.all]
    times: dict[str, object] = {}
    if every:
        times = {
            "processes": tuple(run.runner.latency_ms.p50 for run in runs),
            "executions": len(runs[0].runner.latency_ms.all),
            **{f"p{part}": percentile(every, part / 100) for part in (10, 50, 90)},
            "load_ms": percentile([run.runner.load_ms for run in runs], 0.5),
        }
    return Way.model_validate(
        {
            "name": way.name, "engine": way.engine, "settings": runner.settings,
            "kernels": [Used(node=use.node, kernel=use.kernel, library=use.library) for use in runner.kernels],
            "instructions": counted(trials[-1]), "verdict": trials[0].verdict,
            "max_abs": max((one.max_abs for one in trials[0].outputs if one.max_abs is not None), default=None),
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
