"""What an export adds to a graph, and what this machine's ONNX Runtime computes with a file of the user's."""

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


def test_a_gemm_without_a_bias_gets_one_of_zeros() -> None:
    import onnx
    from onnx.reference import ReferenceEvaluator

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
