"""What engines tell besides results: where the time went, ETDump for upstream's Inspector, weights packed once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.formats.bundle import RUNNER
from core.paths import ROOT
from tests.support.builds import made_by
from tests.support.processes import ran, well
from toolchains.bundle import builder

pytestmark = [pytest.mark.build, pytest.mark.export]

EXECUTIONS = 3
INSPECT = """
import json, sys
from executorch.devtools import Inspector
events = []
for block in Inspector(etdump_path=sys.argv[1], etrecord=sys.argv[2]).event_blocks:
    for event in block.events:
        events.append([block.name, event.name, event.is_delegated_op, event.perf_data.raw, event.op_types])
print(json.dumps(events))
"""
VALUES = """
import json, sys
from executorch.devtools import Inspector
for block in Inspector(etdump_path=sys.argv[1], debug_buffer_path=sys.argv[2]).event_blocks:
    if block.name == "Execute":
        print(json.dumps({event.name: [each.tolist() for each in event.debug_data] for event in block.events}))
"""
WEIGHTS = 2 * 1024 * 1024 * 4
"""Bytes of both layers."""


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the programs of fixtures/runner/engines.py."""
    return made_by(ROOT / "tests/fixtures/runner/engines.py")


def run(engine: str, *words: str) -> dict[str, Any]:
    runner = builder.build("linux-x86_64", engine).path / RUNNER
    answer: dict[str, Any] = json.loads(well(ran([runner, *words, "--cpu_threads=1", "--json"], timeout=120)).stdout)
    return answer


@pytest.mark.parametrize("engine", ["executorch", "lean"])
def test_a_profile_has_every_operator_and_all_the_time(programs: Path, engine: str) -> None:
    words = (f"--model_path={programs / 'mixed.pte'}", f"--inputs={programs / 'mixed.npy'}")
    result = run(engine, *words, "--profile", f"--num_executions={EXECUTIONS}")
    rows = {row["name"]: row for row in result["profile"]}
    assert set(rows) == {
        "Fully Connected (NC, F32) GEMM #1 @0", "DELEGATE_CALL @0", "native_layer_norm.out @1",
        "Fully Connected (NC, F32) GEMM #1 @2", "DELEGATE_CALL @2", "cumsum.out @3", "Method::execute",
    }  # fmt: skip
    assert {row["count"] for row in rows.values()} == {EXECUTIONS}
    assert {row["provider"] for row in rows.values()} == {"XnnpackBackend", "portable", "runtime"}
    for row in rows.values():
        assert 0 <= row["p10_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["total_ms"]
        assert row["p10_ms"] * EXECUTIONS <= row["total_ms"] * 1.001
    # The clock of latencies runs around the engine's own.
    total = sum(row["total_ms"] for row in rows.values())
    assert 0.3 * sum(result["latency_ms"]["all"]) < total <= sum(result["latency_ms"]["all"]) * 1.01
    assert "profile" not in run(engine, *words)


def test_upstreams_inspector_reads_the_lean_engines_etdump(programs: Path, tmp_path: Path) -> None:
    dump = tmp_path / "run.etdp"
    run(
        "lean", f"--model_path={programs / 'mixed.pte'}", f"--inputs={programs / 'mixed.npy'}",
        f"--etdump_path={dump}", f"--num_executions={EXECUTIONS}",
    )  # fmt: skip
    done = well(ran([sys.executable, "-c", INSPECT, dump, programs / "mixed.etrecord"]))
    events = json.loads(done.stdout.splitlines()[-1])
    executed = [event[1:] for event in events if event[0] == "Execute"]
    assert [(name, delegated) for name, delegated, _, _ in executed] == [
        ("Fully Connected (NC, F32) GEMM #1", True), ("DELEGATE_CALL", False),
        ("native_call_native_layer_norm.out", False), ("OPERATOR_CALL", False),
        ("Fully Connected (NC, F32) GEMM #1", True), ("DELEGATE_CALL", False),
        ("native_call_cumsum.out", False), ("OPERATOR_CALL", False), ("Method::execute", False),
    ]  # fmt: skip
    assert all(len(times) == EXECUTIONS for _, _, times, _ in executed)
    assert all(time > 0 for name, delegated, times, _ in executed if not delegated for time in times), "milliseconds"
    # The .etrecord leads from instructions to what the model was written in.
    operators = [types for name, _, _, types in executed if name in ("DELEGATE_CALL", "OPERATOR_CALL")]
    assert operators == [
        ["aten.linear.default"], ["aten.native_layer_norm.default"], ["aten.linear.default"], ["aten.cumsum.default"]
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of upstream's exporter
def test_rounds_of_a_loop_are_calls_that_give_values_each(tmp_path: Path) -> None:
    import torch

    from verify.sound.table import programs as sound_programs

    torch.manual_seed(3)
    words, inputs = {}, {}
    for kind in ("each", "branch"):
        made = sound_programs()[f"flow-{kind}"]()
        (tmp_path / f"{kind}.pte").write_bytes(made.buffer)
        inputs[kind] = [value.numpy() for value in made.runs[0].inputs]
        files = [tmp_path / f"{kind}{place}.npy" for place in range(len(inputs[kind]))]
        for file, value in zip(files, inputs[kind], strict=True):
            numpy.save(file, value)
        words[kind] = (f"--model_path={tmp_path / f'{kind}.pte'}", f"--inputs={','.join(map(str, files))}")
    rows, other = inputs["each"]
    profile = run("lean", *words["each"], "--profile", f"--num_executions={EXECUTIONS}")["profile"]
    counts = {row["operator"]: row["count"] for row in profile}
    assert (counts["mul.out"], counts["executorch_prim::sub.Scalar"]) == (len(rows) * EXECUTIONS, EXECUTIONS)
    operators = {row["operator"] for row in run("lean", *words["branch"], "--profile")["profile"]}
    assert "mul.out" in operators and "add.out" not in operators, "of a branch that is not taken"
    dump, values = tmp_path / "run.etdp", tmp_path / "run.values"
    run("lean", *words["each"], f"--etdump_path={dump}", f"--dump_intermediate={values}")
    done = well(ran([sys.executable, "-c", VALUES, dump, values]))
    found = json.loads(done.stdout.splitlines()[-1])
    numpy.testing.assert_allclose(found["native_call_mul.out"], rows * other, rtol=1e-6)
    numpy.testing.assert_allclose(found["native_call_sum.IntList_out"], rows.sum(1), rtol=1e-5)


def test_methods_share_their_weights(programs: Path, tmp_path: Path) -> None:
    model = f"--model_path={programs / 'shared.pte'}"
    alone, both = (
        run("lean", model, "--method_name=decode", f"--inputs={programs / 'decode.npy'}",
            f"--output_file={tmp_path / name}", *words)
        for name, words in (("alone", ()), ("both", ("--also_load=prefill",)))
    )  # fmt: skip
    assert alone["weights"]["shared"] == 0
    assert WEIGHTS <= alone["weights"]["bytes"] < WEIGHTS * 1.1
    assert both["weights"] == {**alone["weights"], "shared": 2, "shared_bytes": alone["weights"]["bytes"]}
    assert both["peak_rss_bytes"] - alone["peak_rss_bytes"] < WEIGHTS / 8
    wanted = numpy.load(programs / "decode.out.npy")
    for name in ("alone", "both"):
        numpy.testing.assert_allclose(numpy.load(tmp_path / f"{name}0.npy"), wanted, rtol=1e-5, atol=1e-6)
    # Upstream's engine takes the same flag; it does not tell what it shares.
    assert "weights" not in run("executorch", model, "--method_name=decode", "--also_load=prefill")
