"""``./inv inspect`` without an exporter: rows of a profile, their figures, traces, and refused runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands import inspect as command
from commands.inspect import Row, rows
from core.errors import AnswerError, ConfigError, NotSupportedError, ProgramError, UsageError
from core.files import write_atomic
from deploy.run.result import Result, write
from deploy.run.runner import Kernel
from models.inspection import dump, origins
from models.inspection.dump import Event, Execution
from models.inspection.origins import Origin, check
from tests.unit.test_core import _program
from tests.unit.test_result import make

MS = 1_000_000  # nanoseconds


def execution(start: int, linear: int) -> Execution:
    """A delegate's call with two operators, then a kernel; the first operator takes ``linear`` ns."""
    end = start + linear
    return Execution(
        (
            Event("Fully Connected (NC, F32) GEMM #1", True, 0, start, end),
            Event("Add (ND) #1", True, 0, end, end + 2 * MS),
            Event(dump.DELEGATE, False, 0, start, end + 3 * MS),
            Event("native_call_mul.out", False, 1, end + 3 * MS, end + 4 * MS),
            Event(dump.OPERATOR, False, 1, end + 3 * MS, end + 5 * MS),
            Event(dump.METHOD, False, 0, start, end + 6 * MS),
        )
    )


RUNS = (execution(0, 90 * MS), execution(200 * MS, 4 * MS), execution(300 * MS, 6 * MS))
"""The first one is cold."""
ORIGINS = {
    (0, "Fully Connected (NC, F32) GEMM #1"): Origin((3,), ("aten.linear.default",), "up (Linear)", "net.py:4", node=0),
    (0, "Add (ND) #1"): Origin((4,), ("aten.add.Tensor",), "Net", "net.py:5", node=1),
    (1, "mul.out"): Origin((5,), ("aten.mul.Tensor",), "Net", "net.py:6"),
}
KERNEL = Kernel(
    node="Fully Connected (NC, F32) GEMM #1 @0", kernel="xnn_f32_gemm__avx2", library="XNNPACK", feature="avx2"
)


def table(emulated: bool = False) -> dict[str, Row]:
    return {row.name: row for row in rows(RUNS, 2, ORIGINS, [KERNEL], emulated=emulated)}


def test_rows_add_up_to_the_timed_executions() -> None:
    found = table()
    assert {name: row.times and row.times.total for name, row in found.items()} == {
        "Fully Connected (NC, F32) GEMM #1 @0": 10.0, "Add (ND) #1 @0": 4.0, "DELEGATE_CALL @0": 2.0,
        "mul.out @1": 4.0, "Method::execute": 2.0,
    }  # fmt: skip
    assert sum(row.share or 0 for row in found.values()) == pytest.approx(1)
    assert found["Fully Connected (NC, F32) GEMM #1 @0"].share == pytest.approx(10 / 22)
    assert [row.provider for row in found.values()] == ["XnnpackBackend"] * 2 + ["runtime", "portable", "runtime"]
    emulated = table(emulated=True)
    assert list(emulated) == list(found)
    assert {(row.count, row.times, row.warmup, row.share) for row in emulated.values()} == {(2, None, None, None)}


@pytest.mark.parametrize(("names", "kinds", "expected"), [
    (["Convolution (NHWC, F32) IGEMM #1", "Convolution (NHWC, F32) DWConv #1"], ["Conv2d", "DepthwiseConv2d"],
     [0, 1]),
    (["Fully Connected (NC, PF32) #1", "Softmax (NC, F32) #1"], ["StaticReshape", "FullyConnected", "Softmax"],
     [1, 2]),
    (["Unary Elementwise (NC) #1", "Add (ND) #1"], ["Gelu", "Add"], [0, 1]),
    (["Copy (NC, X32) #1", "Transpose (ND, X32) Transpose #1"], ["StaticReshape", "StaticTranspose"], [0, 1]),
    (["Copy (NC, X32) #1"], ["Concatenate3"], [0]),
    (["Fully Connected (NC, F32) #1", "Convolution (NHWC, F32) DWConv #1", "Fully Connected (NC, F32) #2"],
     ["Conv2d", "DepthwiseConv2d", "FullyConnected"], [0, 1, 2]),
])  # fmt: skip
def test_operators_of_a_delegate_are_found_in_its_graph(
    names: list[str], kinds: list[str], expected: list[int]
) -> None:
    found = origins.match(names, [origins.Node(kind, 10 + index) for index, kind in enumerate(kinds)])
    assert [found[name].index for name in names] == expected
    assert [found[name].handle for name in names] == [10 + index for index in expected]
    assert all(one.sure for one in found.values())


def test_a_fused_node_makes_the_others_of_its_kind_unsure() -> None:
    nodes = [origins.Node("Clamp", 1), origins.Node("FullyConnected", 2), origins.Node("Clamp", 3)]
    found = origins.match(["Fully Connected (NC, F32) GEMM #1", "Clamp (NC) #1", "Sigmoid (NC) #1"], nodes)
    assert {name: (one.handle, one.sure) for name, one in found.items()} == {
        "Fully Connected (NC, F32) GEMM #1": (2, True), "Clamp (NC) #1": (3, False),
    }  # fmt: skip


def etdump(size: int = 40) -> bytes:
    return (size - 4).to_bytes(4, "little") + b"\x08\0\0\0ED00" + bytes(size - 12)


def test_damaged_etdumps_and_other_programs_etrecords_are_refused() -> None:
    dump.check(etdump(), "run.etdp")
    for size in (0, 11, 39):
        with pytest.raises(AnswerError, match="is truncated") as caught:
            dump.check(etdump()[:size], "run.etdp")
        assert "--etdump" in caught.value.hint
    with pytest.raises(AnswerError, match="not an ETDump"):
        dump.check(b"PK\3\4" * 10, "run.etdp")
    check(RUNS, record([1], [0]), Path("model.etrecord"))
    for other in (record([], [0]), record([0, 1], []), record([], [0, 1])):
        with pytest.raises(ProgramError, match="of another program") as wrong:
            check(RUNS, other, Path("model.etrecord"))
        assert "instruction" in wrong.value.cause and "--etrecord" in wrong.value.hint


def record(operators: list[int], delegates: list[int]) -> SimpleNamespace:
    """What is read of upstream's ETRecord."""
    handles = {str(number): [1] for number in [*operators, *delegates]}
    return SimpleNamespace(
        _debug_handle_map={"forward": handles}, _delegate_map={"forward": {str(number): {} for number in delegates}}
    )


def kept(dist: Path, engine: str = "lean", files: tuple[str, ...] = ("run.etdp",), **changes: Any) -> Result:
    """A result in ``dist/results`` with an ETDump."""
    result = make()
    result = result.model_copy(update={"bundle": result.bundle.model_copy(update={"engine": engine}), **changes})
    result = result.model_copy(update={"files": tuple(f"{result.key}/{name}" for name in files)})
    write(result)
    for name in result.files:
        write_atomic(dist / "results" / name, etdump())
    return result


def test_a_run_is_found_by_name_file_and_folder(dist: Path) -> None:
    result = kept(dist)
    folder = dist / "results" / result.key
    for name in (result.key, f"{folder}.json", str(folder), str(folder / "run.etdp")):
        source = command.find(name, None)
        assert (source.dump, source.result.key) == (folder / "run.etdp", result.key)
    copy = dist / "other.etdp"
    copy.write_bytes(etdump())
    with pytest.raises(ConfigError, match="not the result of a run"):
        command.find(str(copy), None)


def test_other_runs_that_cannot_be_inspected(dist: Path) -> None:
    with pytest.raises(UsageError, match="No run is named"):
        command.find("", None)
    for folder in (".", "/"):
        with pytest.raises(ConfigError, match="There is no run"):
            command.find(folder, None)
    with pytest.raises(ConfigError, match="no run pi-mlp") as none:
        command.find("pi-mlp", None)
    assert "no results yet" in none.value.cause
    result = kept(dist)
    with pytest.raises(ConfigError) as near:
        command.find("pi-mlp-fp32-laen", None)
    assert "pi-mlp-fp32-lean" in near.value.cause
    (old,) = (dist / "results" / "history").iterdir()
    assert command.find(str(old), None).result
    kept(dist, created="2026-11-21T05:00:00.000Z")
    with pytest.raises(UsageError, match="is gone"):
        command.find(str(old), None)
    (dist / "results" / result.key / "run.etdp").unlink()
    with pytest.raises(UsageError, match=r"The profile of .* is gone"):
        command.find(result.key, None)
    kept(dist, engine="onnxruntime", files=())
    with pytest.raises(NotSupportedError) as onnx:
        command.find("pi-mlp-fp32-onnxruntime", None)
    assert onnx.value.hint.endswith("--profile")
    (dist / "results" / "broken.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="not the result of a run"):
        command.find("broken", None)
    with pytest.raises(ConfigError, match="no ETRecord"):
        command.find(result.key, dist / "none.etrecord")


def test_a_program_that_was_exported_again_is_refused(dist: Path) -> None:
    result = kept(dist)
    folder = dist / "programs" / result.program.name
    write_atomic(folder / "model.etrecord", "")
    program = _program(folder)
    with pytest.raises(ProgramError, match="ETRecord of another program") as caught:
        command.find(result.key, None)
    assert "exported again" in caught.value.cause
    kept(dist, program=result.program.model_copy(update={"sha256": program.sha256}))
    assert command.find(result.key, None).program == folder / "model.pte"
    (folder / "model.pte").write_bytes(b"changed")
    assert command.find(result.key, None).program is None
