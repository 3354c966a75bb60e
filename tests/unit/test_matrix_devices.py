"""The process of a device: what it says comes through, its death is told, and Ctrl-C ends it, willing or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.formats.bundle import Bundle
from deploy.matrix import devices as matrix_devices
from deploy.matrix.devices import Worker
from deploy.matrix.model import Problem
from deploy.run.settings import Settings
from tests.support.matrices import SHELF, problem

SAY = "import sys, json\ndef say(**v): print(json.dumps(v), flush=True)\n"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a worker whose process runs some Python instead of deploying."""
    made: list[Worker] = []

    def make(script: str) -> Worker:
        monkeypatch.setattr(matrix_devices, "_RUN", SAY + script)
        made.append(Worker("shelf"))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        each.close()


def run(worker: Worker, tmp_path: Path) -> list[Any]:
    bundle = Bundle.model_construct(path=tmp_path, manifest=None)  # type: ignore[arg-type]
    return list(worker.run(SHELF, bundle, tmp_path, Settings(num_executions=1)))


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
        assert said == "on the way"
        assert isinstance(told, Problem)
        assert told.error == "host"
        assert "exit 1" in told.what
        assert told.cause == "out of cheese" or told.cause.endswith("; out of cheese")


@pytest.mark.parametrize("willing", [True, False])
def test_an_interruption_ends_it(worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: bool) -> None:
    if not willing:
        monkeypatch.setattr(matrix_devices, "CLEANUP", 0.5)
    deaf = "" if willing else "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    made = worker(f"import time\n{deaf}sys.stdin.readline(); say(event='note', text='busy')\ntime.sleep(600)")
    bundle = Bundle.model_construct(path=tmp_path, manifest=None)  # type: ignore[arg-type]
    answers = made.run(SHELF, bundle, tmp_path, Settings())
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
