"""Filling a matrix: order, failures, resuming, interruptions; and the process of each device."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.errors import BuildError, ExportError
from core.formats.bundle import Bundle, Manifest
from core.processes.sweep import Journal
from deploy.devices.inventory import Device
from deploy.matrix import devices as matrix_devices
from deploy.matrix import run as matrix_run
from deploy.matrix.devices import Worker as DeviceWorker
from deploy.matrix.model import CellResult
from deploy.matrix.plan import Cell, Exportable, Plan
from deploy.matrix.run import Filling
from deploy.run.result import Result
from deploy.run.settings import Prompt, Settings
from tests.support.matrices import EMULATED, MLP, SHELF, cell, problem
from tests.unit.test_result import WRONG, make

OTHER = Exportable("linear-fp32", "linear", "fp32", "pte")
BENCH = SHELF.model_copy(update={"name": "bench"})
HERE = Device(name="local", transport="local", target="linux-arm64")


def bundle_in(folder: Path) -> Bundle:
    """One without files, which nothing runs."""
    return Bundle.model_construct(path=folder, manifest=cast("Manifest", SimpleNamespace(files=())))


class Worker:
    """Stands for the process of a device: says what it is told to for each program."""

    answers: dict[tuple[str, str], Any]
    ran: list[tuple[str, str]]
    busy: set[str]
    together: set[frozenset[str]]
    meeting: threading.Barrier | None

    def __init__(self, device: str) -> None: ...
    def run(self, device: Device, bundle: Bundle, where: Path, settings: dict[str, Any]) -> Iterator[Any]:
        key = device.name, where.name
        Worker.ran.append(key)
        assert device.name not in Worker.busy, "two runs at once on a device"
        Worker.busy.add(device.name)
        if Worker.meeting and device.transport != "local":
            Worker.meeting.wait(60)
        time.sleep(0.05)  # long enough for others to come in, if they are let
        Worker.together.add(frozenset(Worker.busy))
        yield "running"
        answer = Worker.answers.get(key) or make()
        Worker.busy.discard(device.name)
        if isinstance(answer, BaseException):
            raise answer
        if answer != "interrupted":
            yield answer

    def interrupt(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Watcher:
    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.seen: list[CellResult] = []
        self.preparing, self.finished = self.prepared.append, self.seen.append

    def working(self, device: str, what: str) -> None: ...


@pytest.fixture
def filling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a filling of cells, and lets it go."""
    Worker.answers, Worker.ran, Worker.busy, Worker.together, Worker.meeting = {}, [], set(), set(), None
    monkeypatch.setattr(matrix_run, "Worker", Worker)
    inputs = {"value": "1"}
    monkeypatch.setattr(matrix_run, "inputs_of", lambda cell, *_rest: f"{cell.key} {inputs['value']}")

    def make_filling(*cells: Cell, go: bool = True, **options: Any) -> Filling:
        values: dict[str, Any] = {
            "plan": Plan(cells, ()), "build": lambda _t, _e: bundle_in(tmp_path),
            "export": lambda programs: {each: tmp_path / each.name for each in programs}, "watcher": Watcher(),
            "journal": Journal(tmp_path / "cells.jsonl", CellResult), "settings": lambda _cell: {}, **options,
        }  # fmt: skip
        made = Filling(**values)
        if go:
            made.go()
        return made

    make_filling.inputs = inputs  # type: ignore[attr-defined]
    return make_filling


def outcomes(filling: Filling) -> dict[str, str]:
    return {f"{each.device}/{each.program}": each.outcome for each in filling.all()}


def test_each_bundle_and_program_is_made_once(filling: Any) -> None:
    made = filling(cell(), cell(BENCH), cell(program=OTHER), cell(BENCH, OTHER, "executorch"))
    prepared = ["bundle lean for linux-arm64", "bundle executorch for linux-arm64", "2 programs"]
    assert made.watcher.prepared == prepared
    assert set(outcomes(made).values()) == {"passed"}
    assert [each.key for each in made.all()] == [each.key for each in made.plan.cells]


def test_devices_work_in_parallel_each_on_one_run_and_this_machine_alone(filling: Any) -> None:
    Worker.meeting = threading.Barrier(2)
    filling(cell(), cell(program=OTHER), cell(BENCH), cell(BENCH, OTHER), cell(HERE), cell(HERE, OTHER), jobs=3)
    assert frozenset({"shelf", "bench"}) in Worker.together
    assert [busy for busy in Worker.together if "local" in busy] == [frozenset({"local"})]
    assert len(Worker.ran) == 6


def test_what_cannot_be_made_fails_its_cells_alone(filling: Any, tmp_path: Path) -> None:
    def build(_target: str, engine: str) -> Bundle:
        if engine == "executorch":
            raise BuildError("It does not compile.")
        return bundle_in(tmp_path)

    def export(programs: Sequence[Exportable]) -> dict[Exportable, Any]:
        return {MLP: tmp_path / "mlp-fp32", OTHER: ExportError("No such operator.")}

    made = filling(cell(), cell(engine="executorch"), cell(BENCH, OTHER), build=build, export=export)
    first, second, third = made.all()
    assert first.outcome == "passed"
    assert (second.problem.error, second.problem.what) == ("build", "It does not compile.")
    assert (third.problem.error, third.problem.exit_code) == ("export", 6)
    assert Worker.ran == [("shelf", "mlp-fp32")]


def test_errors_and_differences_are_told_apart(filling: Any) -> None:
    Worker.answers = {("shelf", "mlp-fp32"): problem(), ("bench", "mlp-fp32"): make(outputs=(WRONG,))}
    made = filling(cell(), cell(BENCH))
    assert outcomes(made) == {"shelf/mlp-fp32": "failed", "bench/mlp-fp32": "differs"}
    assert made.all()[1].problem.error == "mismatch"
    assert made.all()[1].max_abs == 0.5


def test_resuming_repeats_only_what_did_not_pass_or_has_changed(filling: Any) -> None:
    Worker.answers = {("shelf", "linear-fp32"): problem()}
    filling(cell(), cell(program=OTHER))
    Worker.ran = []
    Worker.answers = {}
    again = filling(cell(), cell(program=OTHER), cell(BENCH), resume=True)
    assert sorted(Worker.ran) == [("bench", "mlp-fp32"), ("shelf", "linear-fp32")]
    assert [each.reused for each in again.all()] == [True, False, False]
    assert set(outcomes(again).values()) == {"passed"}
    Worker.ran = []
    filling.inputs["value"] = "2"
    filling(cell(), resume=True)
    assert Worker.ran == [("shelf", "mlp-fp32")]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"cell": "shelf/linux-arm64/lean/mlp-fp32", "key": "1"}'])
def test_a_damaged_journal_is_no_result(filling: Any, tmp_path: Path, damage: str) -> None:
    filling(cell())
    (tmp_path / "cells.jsonl").write_text(damage)
    filling(cell(), resume=True)
    assert len(Worker.ran) == 2


def test_a_device_that_is_away_is_not_asked_for_every_cell(filling: Any) -> None:
    away = problem(error="unreachable", exit_code=20, what="No connection.")
    programs = [replace(MLP, name=f"p{index}") for index in range(5)]
    Worker.answers = {("shelf", program.name): away for program in programs}
    made = filling(*(cell(program=program) for program in programs), *(cell(BENCH, program) for program in programs))
    assert [name for name, _program in Worker.ran].count("shelf") == 2
    assert [each.outcome for each in made.all()] == ["failed"] * 5 + ["passed"] * 5
    assert "not tried again" in made.all()[4].problem.cause


def test_an_interruption_leaves_what_was_finished(filling: Any) -> None:
    Worker.answers = {("shelf", "linear-fp32"): "interrupted"}
    made = filling(cell(), cell(program=OTHER), cell(program=replace(MLP, name="third")))
    assert list(outcomes(made).values()) == ["passed", "not run", "not run"]
    Worker.answers = {}
    again = filling(*made.plan.cells, resume=True)
    assert [each.reused for each in again.all()] == [True, False, False]


def test_a_fault_of_our_own_is_not_swallowed(filling: Any) -> None:
    Worker.answers = {("shelf", "mlp-fp32"): ZeroDivisionError("ours")}
    made = filling(cell(), cell(program=OTHER), go=False)
    with pytest.raises(ZeroDivisionError):
        made.go()
    assert set(outcomes(made).values()) == {"not run"}


def test_rounds_take_turns_on_real_devices(filling: Any) -> None:
    Worker.answers = {("emu", "mlp-fp32"): make(emulated=True)}
    made = filling(cell(), cell(program=OTHER), cell(EMULATED), rounds=3)
    assert Worker.ran.count(("emu", "mlp-fp32")) == 1
    real = [program for device, program in Worker.ran if device == "shelf"]
    assert [set(real[turn : turn + 2]) for turn in (0, 2, 4)] == [{"mlp-fp32", "linear-fp32"}] * 3
    assert [len(each.rounds) for each in made.all()] == [3, 3, 0]
    assert len(made.watcher.seen) == 3
    again = filling(*made.plan.cells, resume=True, rounds=4)
    assert [len(each.rounds) for each in again.all()[:2]] == [4, 4]
    assert len(Worker.ran) == 9


def test_a_later_round_that_fails_fails_its_cell(filling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Worker.run

    def fails_then(self: Worker, *words: Any) -> Iterator[Any]:
        if Worker.ran:
            Worker.answers = {("shelf", "mlp-fp32"): problem()}
        return run(self, *words)

    monkeypatch.setattr(Worker, "run", fails_then)
    made = filling(cell(), rounds=2)
    assert [each.outcome for each in made.all()] == ["failed"]


def test_a_language_models_cell_is_measured_and_judged_by_its_text(filling: Any) -> None:
    """A program of another kind beside it is neither: its result stays what it is."""
    asked: list[str] = []

    class Speech:
        def prompt(self, program: Path) -> Prompt:
            asked.append(program.name)
            return Prompt(tokens=program, vocabulary=3, flags=())

        def judged(self, found: Result, program: Path) -> Result:
            wrong = tuple(one.model_copy(update={"verdict": "differs"}) for one in found.outputs)
            return found.model_copy(update={"outputs": wrong})

    words = Exportable("words-fp32", "words", "fp32", "pte", text=True)
    found = filling(cell(), cell(program=words), settings=lambda _cell: Settings(), language=Speech())
    assert [each.outcome for each in found.all()] == ["passed", "differs"]
    assert set(asked) == {"words-fp32"}


SAY = "import sys, json\ndef say(**v): print(json.dumps(v), flush=True)\n"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a worker whose process runs some Python instead of deploying."""
    made: list[DeviceWorker] = []

    def make(script: str) -> DeviceWorker:
        monkeypatch.setattr(matrix_devices, "own_module", lambda _: [sys.executable, "-c", SAY + script])
        made.append(DeviceWorker("shelf"))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        each.close()


def run(worker: DeviceWorker, tmp_path: Path) -> list[Any]:
    return list(worker.run(SHELF, bundle_in(tmp_path), tmp_path, Settings(num_executions=1)))


def test_events_and_answers_come_through_one_process(worker: Any, tmp_path: Path) -> None:
    answer = problem().model_dump(mode="json")
    made = worker(
        "n = 0\nfor line in sys.stdin:\n  n += 1\n  r = json.loads(line)\n"
        f"  say(event='note', text=f'{{n}} ' + r['device']['name'])\n  say(problem={answer!r})"
    )
    assert run(made, tmp_path) == ["1 shelf", problem()]
    assert run(made, tmp_path) == ["2 shelf", problem()]
    made.close()
    assert not made.log.exists()


@pytest.mark.parametrize("last", ["", "sys.stdout.write('{\"result\": '); sys.stdout.flush(); "])
def test_its_death_is_told_and_the_next_cell_has_a_new_one(worker: Any, tmp_path: Path, last: str) -> None:
    made = worker(f"sys.stdin.readline(); say(event='note', text='on the way'); {last}sys.exit('out of cheese')")
    for _ in range(2):
        said, told = run(made, tmp_path)
        assert (said, told.error) == ("on the way", "host")
        assert "exit 1" in told.what
        assert told.cause == "out of cheese" or told.cause.endswith("; out of cheese")


@pytest.mark.parametrize("willing", [True, False])
def test_an_interruption_ends_it(worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: bool) -> None:
    if not willing:
        monkeypatch.setattr(matrix_devices, "CLEANUP", 0.5)
    deaf = "" if willing else "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    made = worker(f"import time\n{deaf}sys.stdin.readline(); say(event='note', text='busy')\ntime.sleep(600)")
    answers = made.run(SHELF, bundle_in(tmp_path), tmp_path, Settings())
    assert next(answers) == "busy"
    made.interrupt()
    child = made._child
    assert child is not None
    if not willing:
        threading.Timer(0.3, made.kill).start()
    assert list(answers) == []
    made.close()
    assert child.returncode == (-2 if willing else -9)
    assert run(made, tmp_path) == []  # nothing is started after an interruption
