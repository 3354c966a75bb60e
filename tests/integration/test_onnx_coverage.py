"""What the XNNPACK provider is expected to run; test_onnx_operators.py holds every form against what happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.environment import ensure_onnx
from core.errors import ProgramError


@pytest.fixture(scope="module", autouse=True)
def _packages() -> Iterator[None]:
    ensure_onnx()
    yield


def test_activations_are_fused_into_what_the_provider_takes() -> None:
    from models.onnx.coverage import placement
    from models.onnx.graph import Graph

    def clipped(*bounds: float | None) -> list[str]:
        graph = Graph("clip", 18)
        value = graph.node("MaxPool", graph.input(1, 4, 8, 8), kernel_shape=[2, 2])
        names = ["" if bound is None else graph.constant(np.float32(bound)) for bound in bounds]
        return [one.provider[:3] for one in placement(graph.model(graph.node("Clip", value, *names)))]

    assert clipped(0, 6) == ["Xnn", "Xnn"]
    assert clipped(None, 6) == ["Xnn", "CPU"], "without a lower bound 1.21 leaves it alone"


def test_constants_are_folded_before_anything_is_placed() -> None:
    from models.onnx.coverage import placement
    from models.onnx.graph import Graph

    graph = Graph("folded", 18)
    weights = graph.node("Transpose", graph.weights(24, 16), perm=[1, 0])
    model = graph.model(graph.node("MatMul", graph.input(4, 16), weights))
    assert [(one.operator, one.provider[:3]) for one in placement(model)] == [("MatMul", "Xnn")]


def test_counts_by_operator_and_reason() -> None:
    from models.onnx.coverage import CPU, XNNPACK, Placed, summary

    placed = [Placed("a", "Conv", XNNPACK), Placed("b", "Add", CPU, "no"), Placed("c", "Add", CPU, "no")]
    taken, others = summary(placed)
    assert [(one.name, one.count, one.why) for one in (*taken, *others)] == [("Conv", 1, ""), ("Add", 2, "no")]


def test_a_gemm_without_a_bias_gets_one_of_zeros() -> None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    from models.onnx.coverage import placement
    from models.onnx.graph import Graph
    from models.onnx.making import add_zero_biases

    for transposed in (0, 1):
        graph = Graph("gemm", 18)
        shape = (5, 3) if transposed else (3, 5)
        model = graph.model(graph.node("Gemm", graph.input(2, 3), graph.weights(*shape), transB=transposed))
        given = {"input0": np.arange(6, dtype=np.float32).reshape(2, 3)}
        (before,) = ReferenceEvaluator(model).run(None, given)
        assert add_zero_biases(model) == 1
        onnx.checker.check_model(model, full_check=True)
        (after,) = ReferenceEvaluator(model).run(None, given)
        assert np.array_equal(before, after)
        assert [one.danger for one in placement(model)] == [""]
        assert add_zero_biases(model) == 0


def test_ones_for_inputs_are_those_of_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    from models.onnx.graph import Graph
    from models.onnx.host import Reference, run

    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    graph = Graph("sum", 18)
    file = tmp_path / "sum.onnx"
    onnx.save(graph.model(graph.node("Add", graph.input("n", 3), graph.input(3))), file)

    def output(found: Reference) -> np.ndarray[Any, Any]:
        return np.asarray(np.load(found.outputs[0]))

    plain = run(file)
    assert np.array_equal(output(plain), np.full((1, 3), 2, np.float32))
    assert plain.tolerances[0].atol == 1e-5
    assert output(run(file, shapes="4x3,3")).shape == (4, 3)
    given = np.arange(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", given[None])
    np.save(tmp_path / "y.npy", given)
    assert np.array_equal(output(run(file, inputs=[tmp_path / "x.npy", tmp_path / "y.npy"])), 2 * given[None])

    stamp = plain.outputs[0].stat().st_mtime_ns
    assert run(file).outputs[0].stat().st_mtime_ns == stamp, "the same again is not computed again"
    with pytest.raises(ProgramError, match="does not run on this machine's ONNX Runtime") as caught:
        run(file, shapes="4x3")
    assert "2 inputs, 1 shapes" in caught.value.cause


def test_a_circle_of_constants_ends() -> None:
    from onnx import helper

    from models.onnx.coverage import CPU, placement
    from models.onnx.graph import Graph

    graph = Graph("circle", 18)
    weights = graph.weights(3, 5)
    model = graph.model(graph.node("Gemm", graph.input(2, 3), weights))
    model.graph.node.append(helper.make_node("Identity", [weights], [weights], name="circle"))
    placed = list(placement(model))
    assert [(one.operator, one.provider, one.danger) for one in placed] == [("Gemm", CPU, "crashes")]
