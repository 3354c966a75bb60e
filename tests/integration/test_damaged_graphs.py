"""Delegates' graphs that somebody changed: the lean engine's runner refuses them before XNNPACK sees them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.formats.bundle import RUNNER
from core.formats.program import load_program
from models.export import export
from tests.support.graphs import Graph, call_of, changed, node, tensor, value_of
from tests.support.processes import ran
from toolchains.bundle import builder

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

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


def _swap_arguments(graph: Graph, plan: Any) -> None:
    call = call_of(plan)
    call.args[0], call.args[1] = call.args[1], call.args[0]


def _argument(plan: Any, place: int) -> Any:
    return plan.values[call_of(plan).args[place]].val


def _sixteen_dimensions(graph: Graph, plan: Any) -> None:
    value = _argument(plan, _input(graph)["external_id"])
    value.sizes = [1] * (16 - len(value.sizes)) + list(value.sizes)
    value.dim_order = list(range(16))


def _another_input(graph: Graph, plan: Any) -> None:
    """Of the same number of elements, so that its memory is the same."""
    value = _argument(plan, _input(graph)["external_id"])
    value.sizes = [value.sizes[1], value.sizes[0]]


def _another_type(graph: Graph, plan: Any) -> None:
    value = _argument(plan, _input(graph)["external_id"])
    value.scalar_type = type(value.scalar_type).INT


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
    "float32 turned float16": (
        "mlp", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(datatype="xnn_datatype_fp16"),
        "do not go together"),
    "a filter of float16": (
        "conv", "fp16", lambda graph, _: _filter(graph, "XNNConv2d").update(datatype="xnn_datatype_fp16"),
        "do not go together"),
    "a type that nothing computes with": (
        "linear", "qd8_qb4w",
        lambda graph, _: value_of(graph, node(graph, "XNNFullyConnected")["input1_id"]).update(
            datatype="xnn_datatype_qcint8"),
        "cannot be quantized"),
    "a filter that is smaller": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[1, 256]), "the bias has"),
    "a filter that takes narrower rows": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[128, 255]), "rows of 255"),
    "a filter that is larger than its bytes": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[129, 256]), "are stored"),
    "a filter of two billion": (
        "linear", "fp32", lambda graph, _: _filter(graph, "XNNFullyConnected").update(dims=[2**31, 2**31]),
        "any memory"),
    "seven dimensions": (
        "mlp", "fp32", lambda graph, _: _input(graph).update(dims=[1] * 7, num_dims=7), "XNNPACK knows up to 6"),
    "another number of dimensions than sizes": (
        "mlp", "fp32", lambda graph, _: _input(graph).update(num_dims=6), "says 6"),
    "flags that read the filter in another order": (
        "mlp", "fp32", lambda graph, _: node(graph, "XNNFullyConnected").update(flags=0x7FFFFFFF), "its flags"),
    "weights as they would lie the other way round": (
        "linear", "fp32", lambda graph, _: node(graph, "XNNFullyConnected").update(flags=1), "the bias has"),
    "a sum whose scale is far beyond its inputs'": (
        "mobilenet_v2", "qs8", lambda graph, _: _sum_of_another_size(graph, 3e38), "summed up"),
    "a sum whose scale is far below its inputs'": (
        "mobilenet_v2", "qs8", lambda graph, _: _sum_of_another_size(graph, 1e-6), "summed up"),
    "a kernel of nothing": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNConv2d").update(kernel_height=0), "a filter of"),
    "a stride of nothing": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNConv2d").update(subsampling_width=0), "do not fit such"),
    "a kernel that reaches beyond the image": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNConv2d").update(dilation_height=100), "do not fit such"),
    "padding beyond all numbers": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNConv2d").update(padding_top=NOBODY), "do not fit such images"),
    "more groups": ("conv", "fp32", lambda graph, _: node(graph, "XNNConv2d").update(groups=2), "channels"),
    "an order of dimensions with one twice": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNStaticTranspose").update(perm=[0, 1, 1, 3]), "that order"),
    "an order of dimensions that are not there": (
        "conv", "fp32", lambda graph, _: node(graph, "XNNStaticTranspose").update(perm=[0, 2, 3, NOBODY]),
        "into that order"),
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
    "arguments the other way round": ("matmul", "fp32", _swap_arguments, "is declared as"),
    "an argument of 16 dimensions": ("mlp", "fp32", _sixteen_dimensions, "is declared as"),
    "an argument in another shape": ("mlp", "fp32", _another_input, "is declared as"),
    "an argument of another type": ("mlp", "fp32", _another_type, "not of type fp32"),
    "too few arguments": ("mlp", "fp32", lambda _, plan: call_of(plan).args.pop(), "gives no tensor"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Path:
    return builder.build("linux-x86_64", "lean").path / RUNNER


def _run(runner: Path, program: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(runner), f"--model_path={program}", "--json", "--num_executions=2"]
    return ran(argv, timeout=60)


def _program(model: str, scheme: str) -> bytes:
    folder = export(model, scheme)
    return (folder / load_program(folder).file).read_bytes()


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_graph_is_refused_with_words(runner: Path, tmp_path: Path, name: str) -> None:
    model, scheme, change, words = CHANGES[name]
    file = tmp_path / "changed.pte"
    file.write_bytes(changed(_program(model, scheme), change))
    done = _run(runner, file)
    assert done.returncode == DAMAGED, (done.returncode, done.stdout, done.stderr)
    error = json.loads(done.stdout)["error"]
    assert words in error["message"], error
    assert error["fix"]


@pytest.mark.parametrize(("model", "scheme"), sorted({row[:2] for row in CHANGES.values()}))
def test_a_graph_put_together_again_runs(runner: Path, tmp_path: Path, model: str, scheme: str) -> None:
    """So that it is the change that is refused."""
    file = tmp_path / "same.pte"
    file.write_bytes(changed(_program(model, scheme), lambda _graph, _plan: None))
    done = _run(runner, file)
    assert done.returncode == 0, (done.stdout, done.stderr)
