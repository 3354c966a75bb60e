"""Tuning from this side: names and words, the answers of a runner, the refusal of emulated devices, the slices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.errors import AnswerError, EmulatedError, UsageError
from deploy.devices.inventory import Device
from deploy.run import tuning
from deploy.run.report_tuning import outcome
from deploy.run.runner import Tuned as TunedFile
from deploy.run.settings import Settings
from deploy.run.tuned import tuned_text
from deploy.run.tuning import TuningSession, check_measurable, listed
from deploy.store.gc import is_measured, parse, plan

MODEL = "a" * 64
LAYER = {"layer": "forward/0/1", "node": "GEMM #1 @0", "own": "8x32", "choice": "12x32", "own_us": 20, "tuned_us": 10}


def answer(phase: str = "done", **others: Any) -> bytes:
    return json.dumps({"schema": 1, "tuning": {"phase": phase, "progress": 0.5, **others}}).encode()


class Session(TuningSession):
    """A session whose runner answers what the test says, a slice after another."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.device = Device(name="bench", transport="local", target="linux-x86_64")
        self.answers = list(answers)
        self.asked: list[str] = []

    def go_on(self, limit: float, threads: int = 0) -> tuning.Tuning:
        class Nothing:
            def __getattr__(self, _: str) -> Any:
                return self

            def __call__(self, *_: Any, **__: Any) -> Any:
                return self

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                return None

        self.steps = Nothing()  # type: ignore[assignment]
        self.job = Nothing()  # type: ignore[assignment]
        self.job.input_names = []  # type: ignore[misc]
        self.job.shapes = ""  # type: ignore[misc]
        store: Any = Nothing()
        return self._measured(store, Settings(threads=threads), "weights/x.tuned", limit)

    def _argv(self, store: Any, flags: Sequence[str]) -> list[str]:
        return list(flags)

    def _ask_runner(self, store: Any, argv: Sequence[str], doing: str) -> bytes:
        self.asked.append(argv[-1])
        return self.answers.pop(0)


def test_slices_follow_each_other_until_all_is_known() -> None:
    session = Session([answer("threads"), answer("layers"), answer("checks"), answer(kept=True, layers=[LAYER])])
    found = session.go_on(1000)
    assert found.kept
    assert found.layers[0].choice == "12x32"
    assert session.asked == [f"--tune_seconds={tuning.SLICE:.0f}"] * 4


def test_when_the_time_is_over_the_runner_comes_to_an_end() -> None:
    session = Session([answer("done", why="nothing")])
    assert session.go_on(0).why == "nothing"
    assert session.asked == ["--tune_finish"]
    with pytest.raises(AnswerError, match="did not end its measurement"):
        Session([answer("layers")]).go_on(0)


@pytest.mark.parametrize(
    "said",
    [b"", b"{}", b"[]", answer("lunch"), answer(progress=2), answer(kept="yes, certainly"), answer(own_ms=-1),
     answer(layers=[{"layer": 1}]), b'{"tuning": {"phase": "done", "progress": NaN}}'],
)  # fmt: skip
def test_a_strange_answer_is_refused(said: bytes) -> None:
    with pytest.raises(AnswerError):
        Session([said]).go_on(1000)


def test_an_emulated_device_is_refused_with_a_code_of_its_own() -> None:
    device = Device(name="pi", transport="ssh", host="pi", target="linux-arm64", tags=("emulated",))
    with pytest.raises(EmulatedError, match="nothing was measured") as refused:
        check_measurable(device)
    assert refused.value.exit_code == 37
    check_measurable(device.model_copy(update={"tags": ()}))


def test_what_a_description_lists() -> None:
    kernel = {"node": "n", "kernel": "k", "library": "Slipway", "feature": "avx2", "layer": "forward/0/1",
              "choice": "8x32", "own_choice": "8x32", "candidates": [{"choice": "8x32", "estimate": 1.0}]}  # fmt: skip
    said = json.dumps({"methods": [{"name": "forward", "kernels": [kernel]}, {"name": "other"}]}).encode()
    (found,) = listed(said, "forward")
    assert found.candidates[0].choice == "8x32"
    assert listed(said, "other") == ()
    with pytest.raises(AnswerError):
        listed(b'{"methods": 3}', "forward")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"state": "none", "why": "there is none"}, ""),
        ({"state": "none", "why": "it was made for another runner"},
         "not used: it was made for another runner (./inv tune measures again)"),
        ({"state": "used", "layers": 1, "threads": 2, "own_ms": 2, "tuned_ms": 1.5},
         "1 layer with other kernels, 2 threads; 1.500 ms instead of 2.000 ms when it was measured"),
        ({"state": "used", "layers": 3}, "3 layers with other kernels"),
    ],
)  # fmt: skip
def test_what_a_result_says(fields: dict[str, Any], text: str) -> None:
    assert tuned_text(TunedFile(path="p", **fields)) == text


def test_measured_choices_stay_with_their_program() -> None:
    other = "b" * 64
    lines = ["now 1000000", f"file 100 1000000 1 store/{MODEL}"]
    lines += [f"file 50 1000000 1 weights/{MODEL}.t-lean", f"file 5 1 1 weights/{MODEL}.t-lean.forward.tuned"]
    lines += [f"file 5 1 1 weights/{other}.t-lean.forward.tuned.part"]
    found = parse(lines)
    assert is_measured(f"{MODEL}.t-lean.forward.tuned.part")
    assert not is_measured(f"{MODEL}.t-lean")
    orphan = f"weights/{other}.t-lean.forward.tuned.part"
    assert plan(found, max_bytes=110, max_days=30) == [orphan, f"weights/{MODEL}.t-lean"]
    assert set(plan(found, max_bytes=0, max_days=30)) == {
        orphan, f"weights/{MODEL}.t-lean", f"weights/{MODEL}.t-lean.forward.tuned", f"store/{MODEL}",
    }  # fmt: skip


def test_only_lean_can_be_tuned(tmp_path: Path) -> None:
    from commands.tune import prepare

    words: Any = {"engine": "executorch"}
    with pytest.raises(UsageError, match="no choice of kernels"):
        prepare(words, Device(name="d", transport="local", target="linux-x86_64"), tmp_path)


def test_the_outcome_in_words() -> None:
    class Value:
        verdict = "agrees"
        tuning = tuning.Tuning(phase="done", progress=1, why="it is not faster")

    value: Any = Value()
    assert outcome(value) == "nothing is kept: it is not faster"
    Value.tuning = tuning.Tuning(phase="done", progress=1, kept=True)
    assert "later deploys take it" in outcome(value)
    Value.tuning = tuning.Tuning(phase="done", progress=1, kept=True, already=True)
    assert "measured before" in outcome(value)
