"""Delegates' graphs that somebody changed: the lean engine's runner refuses them before XNNPACK sees them.

Changed sizes, parameters and flags of nodes of each kind, and other arguments of a call, are in
``runtime/tests/lean/test_graph_check.cpp``. Behind them, samples of what ``verify.fuzz`` searches for.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.formats.program import load_program
from models.export import export
from tests.support.graphs import Graph, call_of, changed, node, tensor, value_of
from tests.support.processes import ran, well
from verify.fuzz import tool

pytestmark = [pytest.mark.build, pytest.mark.export]

DAMAGED = 3
NOBODY = 2**32 - 1

Change = Callable[[Graph, Any], None]


def _input(graph: Graph) -> Graph:
    return next(one for one in (tensor(graph, i) for i in range(len(graph["xvalues"]))) if one["flags"] == 1)


def _output(graph: Graph) -> Graph:
    return next(one for one in (tensor(graph, i) for i in range(len(graph["xvalues"]))) if one["flags"] == 2)


def _filter(graph: Graph, kind: str) -> Graph:
    return value_of(graph, node(graph, kind)["filter_id"])


def _quantization(graph: Graph, kind: str) -> Graph:
    values = (one["xvalue_union"] for one in graph["xvalues"])
    found: Graph = next(one["quant_params"] for one in values if one.get("quant_params_type") == kind)
    return found


def _sum_of_another_size(graph: Graph, scale: float) -> None:
    wanted = node(graph, "XNNAdd")["output_id"]
    values = (one["xvalue_union"] for one in graph["xvalues"])
    found = next(one for one in values if "tensor_value" in one and one["tensor_value"]["id_out"] == wanted)
    found["quant_params"]["scale"] = scale


def _places(graph: Graph, plan: Any) -> tuple[int, int]:
    """The values that the call reads and makes."""
    arguments = call_of(plan).args
    return arguments[_input(graph)["external_id"]], arguments[_output(graph)["external_id"]]


def _output_in_the_input(graph: Graph, plan: Any) -> None:
    given, made = _places(graph, plan)
    plan.values[made].val.allocation_info = plan.values[given].val.allocation_info


def _input_as_output(graph: Graph, plan: Any) -> None:
    given, _ = _places(graph, plan)
    call_of(plan).args[_output(graph)["external_id"]] = given


def _unused(graph: Graph, plan: Any) -> None:
    """The output comes from the node before the last, whose result is then a value for nobody."""
    last, before = graph["xnodes"][-1]["xnode_union"], graph["xnodes"][-2]["xnode_union"]
    before["output_id"], last["output_id"] = last["output_id"], before["output_id"]


CHANGES: dict[str, tuple[str, str, Change, str]] = {
    "a value is outside and has no place there": (
        "mlp", "fp32", lambda graph, _: _input(graph).update(external_id=NOBODY), "beyond the"),
    "two values have one place": (
        "matmul", "fp32", lambda graph, _: _output(graph).update(external_id=0), "same input"),
    "two values have one number": (
        "mlp", "fp32", lambda graph, _: tensor(graph, 1).update(id_out=tensor(graph, 0)["id_out"]), "there twice"),
    "an intermediate value is an output": (
        "conv", "fp32", lambda graph, _: value_of(graph, node(graph, "XNNConv2d")["output_id"]).update(flags=2),
        "beyond the"),
    "an input is an output, too": ("mlp", "fp32", lambda graph, _: _input(graph).update(flags=3), "its flags 3"),
    "a call's result lies in its input": ("mlp", "fp32", _output_in_the_input, "in the memory of value"),
    "a call's input is its result": ("mlp", "fp32", _input_as_output, "names its result, value"),
    "a constant is an input": (
        "mlp", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(flags=1), "its flags 1"),
    "a value is for nobody": ("mlp", "fp32", _unused, "before a node makes it"),
    "a node names a value that is not there": (
        "mlp", "fp32", lambda graph, _: node(graph, "XNNFullyConnected").update(filter_id=999), "no value 999"),
    "a node reads what it makes": (
        "conv", "fp32",
        lambda graph, _: node(graph, "XNNConv2d").update(output_id=node(graph, "XNNConv2d")["input1_id"]),
        "is there before the node makes it"),
    "a type that nothing computes with": (
        "linear", "qd8_qb4w",
        lambda graph, _: value_of(graph, node(graph, "XNNFullyConnected")["input1_id"]).update(
            datatype="xnn_datatype_qcint8"),
        "cannot be quantized"),
    "a filter that is larger than its bytes": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[129, 256]), "are stored"),
    "a filter of two billion": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[2**31, 2**31]),
        "any memory"),
    "another number of dimensions than sizes": (
        "mlp", "fp32", lambda graph, _: _input(graph).update(num_dims=6), "says 6"),
    "a sum whose scale is far beyond its inputs'": (
        "mobilenet_v2", "qs8", lambda graph, _: _sum_of_another_size(graph, 3e38), "summed up"),
    "a sum whose scale is far below its inputs'": (
        "mobilenet_v2", "qs8", lambda graph, _: _sum_of_another_size(graph, 1e-6), "summed up"),
    "a scale of nothing": (
        "conv", "qs8", lambda graph, _: _quantization(graph, "PerTensorQuant").update(scale=0.0), "impossible"),
    "a zero point of another type": (
        "conv", "qs8", lambda graph, _: _quantization(graph, "PerTensorQuant").update(zero_point=4096), "point 4096"),
    "scales along another dimension": (
        "conv", "qs8", lambda graph, _: _quantization(graph, "PerChannelQuant").update(channel_dim=9), "dimension 9"),
    "blocks of another size": (
        "linear", "qd8_qb4w", lambda graph, _: _quantization(graph, "PerChannelGroupQuant").update(group_size=7),
        "each block of 7"),
    "rows quantized together": (
        "linear", "qd8_qc8w", lambda graph, _: _quantization(graph, "PerTokenDynamicQuant").update(num_nonbatch_dims=2),
        "quantized by itself"),
}  # fmt: skip


def _run(runner: Path, program: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(runner), f"--model_path={program}", "--json", "--num_executions=2"]
    return ran(argv, timeout=60)


def program(model: str, scheme: str) -> Path:
    folder = export(model, scheme)
    return folder / load_program(folder).file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_graph_is_refused_with_words(lean_runner: Path, tmp_path: Path, name: str) -> None:
    model, scheme, change, words = CHANGES[name]
    file = tmp_path / "changed.pte"
    file.write_bytes(changed(program(model, scheme).read_bytes(), change))
    done = _run(lean_runner, file)
    assert done.returncode == DAMAGED, (done.returncode, done.stdout, done.stderr)
    error = json.loads(done.stdout)["error"]
    assert words in error["message"], error
    assert error["fix"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "scheme"), sorted({row[:2] for row in CHANGES.values()}))
def test_a_graph_put_together_again_runs(lean_runner: Path, tmp_path: Path, model: str, scheme: str) -> None:
    """So that it is the change that is refused."""
    file = tmp_path / "same.pte"
    file.write_bytes(changed(program(model, scheme).read_bytes(), lambda _graph, _plan: None))
    well(_run(lean_runner, file))


CASES = (("conv", "qs8", 9), ("mlp", "fp32", 5), ("linear", "qd8_qb4w", 5))
"""Model, scheme, and of how many patches one is tried."""


@pytest.fixture(scope="module")
def sweep() -> Path:
    return tool()


def tried(*argv: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *findings, last = [json.loads(line) for line in well(ran(argv, timeout=600)).stdout.splitlines()]
    return findings, last


@pytest.mark.parametrize(("model", "scheme", "every"), CASES)
def test_changed_numbers_are_refused_or_run_within_their_memory(
    sweep: Path, model: str, scheme: str, every: int
) -> None:
    findings, last = tried(sweep, program(model, scheme), "--run", f"--every={every}")
    assert not findings, [f"{one['path']} {one['was']} -> {one['now']}: {one['outcome']}" for one in findings]
    assert last["tried"] > 150
    assert last["sums"]["ran"] > 10
    assert last["sums"]["refused-3"] > 100


def test_a_loop_without_end_is_refused_for_its_rounds(sweep: Path) -> None:
    file = program("mixed", "fp16")
    listed = well(ran([sweep, file, "--list"], timeout=60))
    path = "execution_plan[0].chains[0].instructions[15].instr_args_type"
    turned = [line.split("\t") for line in listed.stdout.splitlines() if f"\t{path}\t" in line]
    # A kernel's call becomes a jump backwards, on a condition that stays false.
    (number,) = [words[0] for words in turned if words[-1] == "4"]
    findings, last = tried(sweep, file, "--run", f"--first={number}", "--count=1")
    assert not findings
    assert last["sums"] == {"refused-11": 1}


def test_memory_between_guarded_pages_ends_what_leaves_it(sweep: Path) -> None:
    """The sweep itself: what is written or read a byte too far is a finding, and so is undefined behaviour."""
    for fault in ("write-behind", "read-far", "write-before", "undefined"):
        done = ran([sweep, f"--fault={fault}"], timeout=60)
        assert done.returncode not in (0, 2), fault
        assert "signal" in done.stderr, fault


@pytest.mark.parametrize(
    ("model", "scheme", "refused", "runs"),
    [("conv", "fp32", (2, 3), ()), ("linear", "qd8_qc8w", (3, 4), (2,))],
    ids=["weights and biases", "scales and biases; weights of 8 bits"],
)
def test_constants_at_addresses_of_other_types_are_refused(
    sweep: Path, model: str, scheme: str, refused: tuple[int, ...], runs: tuple[int, ...]
) -> None:
    """Some processors end a program that reads a float32 anywhere; of int8 every address is good."""
    file = program(model, scheme)
    said = well(ran([sweep, file, "--list"], timeout=60)).stdout
    seen: dict[str, set[str]] = {}
    for number, path, was, now in (line.split("\t") for line in said.splitlines()):
        if path.startswith("segments[") and path.endswith(".offset") and abs(int(now) - int(was)) == 1:
            _, last = tried(sweep, file, "--run", f"--first={number}", "--count=1")
            seen.setdefault(path, set()).update(last["sums"])
    for segments, outcome in ((refused, "refused-3"), (runs, "ran")):
        for segment in segments:
            assert seen[f"segments[{segment}].offset"] == {outcome}, seen
