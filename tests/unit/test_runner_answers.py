"""What the runner's end means: exit codes, signals, its JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import (
    CrashError,
    DeviceFullError,
    MissingOperatorError,
    ProgramError,
    RunError,
    SlipwayError,
    TransferError,
    UsageError,
)
from deploy.run.runner import command, error_in, failure, parse_result

TENSOR = {"dtype": "float32", "shape": [1], "sha256": "0" * 64, "file": "output0.npy"}
ANSWER: dict[str, Any] = {
    "schema": 1, "engine": {"name": "executorch", "version": "1.5.1"}, "method": "forward", "load_ms": 1.5,
    "latency_ms": {"count": 1, "warmup": 0, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1, "all": [1]},
    "peak_rss_bytes": 1000, "threads": 2, "inputs": [], "outputs": [TENSOR], "cpu": {"arch": "aarch64"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (2, RunError, "arguments"), (3, ProgramError, "cannot be loaded"), (4, MissingOperatorError, "operators"),
        (5, MissingOperatorError, "backend"), (6, UsageError, "inputs"), (7, RunError, "while it ran"),
        (8, RunError, "outputs"), (9, RunError, "Memory"),
        (126, RunError, "not allowed"), (127, RunError, "is missing"),
        (10, CrashError, "crashed"), (11, RunError, "limit"), (77, RunError, "exit 77"),
        (128 + 4, CrashError, "SIGILL"), (128 + 6, CrashError, "SIGABRT"), (128 + 7, CrashError, "SIGBUS"),
        (128 + 8, CrashError, "SIGFPE"), (128 + 9, RunError, "out of memory"), (128 + 11, CrashError, "SIGSEGV"),
        (128 + 99, RunError, "signal 99"),
    ],
)  # fmt: skip
def test_codes(code: int, kind: type[SlipwayError], words: str) -> None:
    error = failure(code, "a\nb", {}, "pi")
    assert type(error) is kind
    assert words in str(error)
    assert "pi" in error.what


def test_a_full_disk_and_an_illegal_instruction_are_explained() -> None:
    assert "CPU features which this device lacks" in failure(132, "", {}, "pi").cause
    assert isinstance(failure(8, "write: No space left on device", {}, "pi"), DeviceFullError)


@pytest.mark.parametrize("code", [10, 128 + 6, 128 + 7, 128 + 11])
def test_a_crash_is_not_blamed_on_the_program(code: int) -> None:
    error = failure(code, "", {"message": "it crashed", "fix": "report it"}, "pi")
    assert (error.kind, error.exit_code) == ("crash", 35)
    assert "damaged" not in str(error)
    assert "report it" in error.hint


def test_the_runners_own_words_come_through() -> None:
    answer = error_in(json.dumps({"error": {"message": "needs a", "fix": "do b", "names": ["aten::c"]}}))
    error = failure(4, "noise", answer, "pi")
    assert (error.cause, error.names) == ('pi says: "needs a"\npi suggests: "do b"', ("aten::c",))
    assert error.hint.startswith("./inv build"), "a device's advice is not ours"
    here = failure(4, "noise", answer, "this machine", here=True)
    assert (here.cause, here.hint, here.names) == ("needs a", "do b", ("aten::c",))


@pytest.mark.parametrize("raw", ["", "x", "[]", "{}", '{"error": 3}'])
def test_no_error_object(raw: str) -> None:
    assert error_in(raw) == {}


def test_result() -> None:
    result = parse_result(json.dumps(ANSWER).encode())
    assert result.latency_ms.p50 == 1
    assert result.outputs[0].shape == (1,)
    assert result.model_dump()["cpu"] == {"arch": "aarch64"}
    result = parse_result(json.dumps({**ANSWER, "method": "a\x1b[31m", "new": {"b\u202e": ["\x9b"]}}).encode())
    assert result.method == r"a\x1b[31m"
    assert result.model_dump()["new"] == {r"b\u202e": [r"\x9b"]}
    kernel = {"node": "a #1 @0", "kernel": "kai_run_b", "library": "KleidiAI", "feature": "neoni8mm"}
    weights = {"bytes": 640, "blocks": 2, "shared": 1, "shared_bytes": 64}
    result = parse_result(json.dumps({**ANSWER, "kernels": [kernel], "weights": weights}).encode())
    assert [item.model_dump() for item in result.kernels] == [{**kernel, "known": ""}]
    assert result.weights is not None
    assert result.weights.model_dump() == {**weights, "packed": 0, "cache": None}
    assert parse_result(json.dumps(ANSWER).encode()).weights is None


@pytest.mark.parametrize("change", [{"load_ms": "fast"}, {"outputs": [{**TENSOR, "sha256": "../../x"}]}, {"engine": 1}])
def test_bad_result(change: dict[str, Any]) -> None:
    with pytest.raises(TransferError, match="cannot be read"):
        parse_result(json.dumps({**ANSWER, **change}).encode())


def test_bad_json() -> None:
    with pytest.raises(TransferError):
        parse_result(b"")


@pytest.mark.parametrize(
    "answer", [{"message": 3, "fix": ["x"], "names": "abc"}, {"names": [1, None, {}]}, {"fix": None}]
)
def test_an_error_object_of_wrong_types(answer: dict[str, Any]) -> None:
    error = failure(7, "", answer, "pi")
    assert (error.cause, error.names) == ("", ())


def test_command() -> None:
    argv = command("/r", model="model.pte", inputs=["input0.npy", "input1.npy"], shapes="", method="forward",
                   executions=3, warmup=1, threads=0, etdump=False)  # fmt: skip
    assert argv[:2] == ["/r", "--model_path=model.pte"]
    assert "--inputs=input0.npy,input1.npy" in argv
    assert not [word for word in argv if "cpu_threads" in word or "etdump" in word or "input_shapes" in word]
    more = command("/r", model="model.onnx", inputs=[], shapes="1x3", method="f", executions=1, warmup=0, threads=2,
                   etdump=True, engine_flags=["--provider=cpu"])  # fmt: skip
    assert more[-1] == "--provider=cpu"
    assert {"--input_shapes=1x3", "--cpu_threads=2", "--etdump_path=run.etdp"} <= set(more)
