"""Results: what the runner's end and its JSON mean, what a table shows, and that emulated times are marked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from core.errors import (
    AnswerError,
    CrashError,
    DeviceFullError,
    MismatchError,
    MissingOperatorError,
    ProgramError,
    RunError,
    SlipwayError,
    UsageError,
)
from core.formats.program import Tolerance
from deploy.devices.facts import DeviceFacts
from deploy.run import report
from deploy.run.compare import Comparison
from deploy.run.result import EMULATED, BundleUsed, ProgramUsed, Result, Upload, overall, result_key, write
from deploy.run.runner import error_in, failure, parse_result

TENSOR = {"dtype": "float32", "shape": [1], "sha256": "0" * 64, "file": "output0.npy"}
ANSWER: dict[str, Any] = {
    "schema": 1, "engine": {"name": "executorch", "version": "1.5.1"}, "method": "forward", "load_ms": 1.5,
    "latency_ms": {"count": 1, "warmup": 0, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1, "all": [1]},
    "peak_rss_bytes": 1000, "threads": 2, "inputs": [], "outputs": [TENSOR], "cpu": {"arch": "aarch64"},
}  # fmt: skip


@pytest.mark.parametrize(("code", "kind", "words"), [
    (2, RunError, "arguments"), (3, ProgramError, "cannot be loaded"), (4, MissingOperatorError, "operators"),
    (5, MissingOperatorError, "backend"), (6, UsageError, "inputs"), (7, RunError, "while it ran"),
    (8, RunError, "outputs"), (9, RunError, "Memory"),
    (126, RunError, "not allowed"), (127, RunError, "is missing"),
    (10, CrashError, "crashed"), (11, RunError, "limit"), (77, RunError, "exit 77"),
    (128 + 4, CrashError, "SIGILL"), (128 + 6, CrashError, "SIGABRT"), (128 + 7, CrashError, "SIGBUS"),
    (128 + 8, CrashError, "SIGFPE"), (128 + 9, RunError, "out of memory"), (128 + 11, CrashError, "SIGSEGV"),
    (128 + 99, RunError, "signal 99"),
])  # fmt: skip
def test_codes(code: int, kind: type[SlipwayError], words: str) -> None:
    error = failure(code, "a\nb", {}, "pi")
    assert type(error) is kind
    assert words in str(error)
    assert "pi" in error.what
    if kind is CrashError:
        assert "damaged" not in str(error), "the program is not blamed"
        assert "report it" in error.hint or code == 132


def test_the_runners_own_words_come_through() -> None:
    answer = error_in(json.dumps({"error": {"message": "needs a", "fix": "do b", "names": ["aten::c"]}}))
    error = failure(4, "noise", answer, "pi")
    assert (error.cause, error.names) == ('pi says: "needs a"\npi suggests: "do b"', ("aten::c",))
    assert error.hint.startswith("./inv build"), "a device's advice is not ours"
    here = failure(4, "noise", answer, "this machine", here=True)
    assert (here.cause, here.hint, here.names) == ("needs a", "do b", ("aten::c",))
    assert "CPU features which this device lacks" in failure(132, "", {}, "pi").cause
    assert isinstance(failure(8, "write: No space left on device", {}, "pi"), DeviceFullError)


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
    assert [item.model_dump() for item in result.kernels] == [kernel]
    assert result.weights is not None
    assert result.weights.model_dump() == {**weights, "cache": None}
    assert parse_result(json.dumps(ANSWER).encode()).weights is None


@pytest.mark.parametrize("change", [
    {"load_ms": "1.5"}, {"engine": 1}, {"peak_rss_bytes": -1}, {"threads": True}, {"threads": "2"},
    {"threads": 2.0}, {"digests": {"files": [{"path": "x", "size": 1, "sha256": "../x"}]}},
    *({"outputs": [{**TENSOR, **change}]} for change in (
        {"sha256": "../../x"}, {"shape": [-1]}, {"shape": [True]},
        {"shape": ["1"]}, {"shape": [10**30]}, {"shape": [1] * 1000},
    )),
])  # fmt: skip
def test_bad_result(change: dict[str, Any]) -> None:
    """Types are strict; in a whole deploy: tests/faults/test_hostile.py."""
    with pytest.raises(AnswerError, match="cannot be read"):
        parse_result(json.dumps({**ANSWER, **change}).encode())


LOOSE = Tolerance(atol=1e-5, rtol=0, why="fp32")
GOOD = Comparison(name="output0", dtype="float32", shape=(1, 1000), verdict="agrees", max_abs=2e-6, elements=1000,
                  different=3, tolerance=LOOSE)  # fmt: skip
WRONG = GOOD.model_copy(update={"name": "output1", "verdict": "differs", "max_abs": 0.5, "outside": 7})


def make(emulated: bool = False, outputs: tuple[Comparison, ...] = (GOOD,), **upload: Any) -> Result:
    moved = {"files": 2, "bytes": 14_000_000, "present_files": 6, "present_bytes": 12_000_000, **upload}
    return Result(
        created="2026-11-21T04:00:00.000Z", device="pi", transport="ssh", emulated=emulated,
        latency_note=EMULATED if emulated else "", preflight=(), upload=Upload(**moved), outputs=outputs,
        facts=DeviceFacts(system="Linux", machine="aarch64", kernel="6.1", root="/r"),
        bundle=BundleUsed(
            target="linux-arm64", engine="executorch", engine_version="1.5.1", toolchain="zig", digest="0",
        ),
        program=ProgramUsed(name="mlp-fp32", file="model.pte", size=1, sha256="0", reference_engine="executorch 1.5.1"),
        runner=parse_result(json.dumps(ANSWER).encode()), verdict=overall(outputs), seconds={"run": 1.0, "upload": 2.0},
    )  # fmt: skip


def test_a_table_never_shows_emulated_times_as_latency(capsys: pytest.CaptureFixture[str]) -> None:
    report.result(make())
    out = capsys.readouterr().out
    for words in ("output0", "1×1000", "2e-06", "1e-05", "agrees", "1.50 ms", "14 MB in 2 files", "3.0 s"):
        assert words in out
    report.result(make(files=0, bytes=0))
    assert re.search(r"uploaded +nothing(; | *\n)", capsys.readouterr().out)
    report.result(make(emulated=True))
    out = capsys.readouterr().out
    assert EMULATED in out
    assert " ms" not in out
    report.result(make(emulated=True), as_json=True)
    value = json.loads(capsys.readouterr().out)
    assert (value["emulated"], value["latency_note"]) == (True, EMULATED)


def test_a_hint_of_the_runners_names_what_a_user_types(capsys: pytest.CaptureFixture[str]) -> None:
    placement = {
        "nodes": [{"name": "my_node", "operator": "Conv", "provider": "CPUExecutionProvider"}],
        "hints": ["Conv my_node: --input_shapes 1x3 fixes them"],
    }
    value = make().model_copy(update={"runner": parse_result(json.dumps({**ANSWER, "placement": placement}).encode())})
    report.result(value)
    assert "Conv my_node: --inputs 1x3 fixes them" in capsys.readouterr().out


def test_a_difference_is_shown_then_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MismatchError, match="1 of 2 outputs of mlp-fp32 on pi") as caught:
        report.result(make(outputs=(GOOD, WRONG)))
    assert caught.value.exit_code == 32
    assert caught.value.names == ("output1",)
    assert "7 of 1,000 elements outside 1e-05, largest error 0.5" in caught.value.cause
    assert "DIFFERS (7 of 1,000)" in capsys.readouterr().out


def test_written_twice_over_under_a_safe_name(dist: Path) -> None:
    result = make()
    path = write(result)
    assert path == dist / "results/pi-mlp-fp32-executorch.json"
    assert Result.model_validate_json(path.read_text()) == result
    assert len(list((dist / "results/history").iterdir())) == 1
    write(result.model_copy(update={"created": "2026-11-21T04:00:01.000Z"}))
    assert len(list((dist / "results/history").iterdir())) == 2
    assert result_key("a/b", "../c d", "e") == "a_b-.._c_d-e"
