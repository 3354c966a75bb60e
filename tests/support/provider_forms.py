"""Small ONNX models at the limits of the XNNPACK provider's rules, and how a bundle runs them.

What each did was seen with ONNX Runtime 1.21 on linux-x86_64. Imports the onnx package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from core.formats.bundle import Bundle
from core.processes.commands import run
from deploy.run.needs import runner_here
from tests.support.onnx_graph import Graph

XNNPACK, CPU = "XnnpackExecutionProvider", "CPUExecutionProvider"
_KEPT = "the model was kept from the XNNPACK provider: "
Make = Callable[[Graph], Any]


@dataclass(frozen=True)
class Form:
    """A model in which one operator is at a limit."""

    name: str
    operator: str
    """The one that it is about, as it runs."""
    taken: bool
    """Whether the provider runs it."""
    make: Make
    opset: int = 18
    trusted: bool = True
    """Whether the provider computes it rightly, or leaves it alone, where nothing is kept from it."""
    luck: bool = False
    """Though it is not trusted, it was right on some machines: it depends on what lies beside its numbers."""
    near: float = 1e-4
    """How far outputs may be from the CPU provider's."""

    def model(self) -> Any:
        graph = Graph(self.name, self.opset)
        outputs = self.make(graph)
        return graph.model(*outputs) if isinstance(outputs, tuple) else graph.model(outputs)


UNKNOWN = 5
"""Size of a dimension that a model leaves open."""


@dataclass(frozen=True)
class Run:
    """One run of a model with one provider."""

    outputs: tuple[np.ndarray[Any, Any], ...]
    placed: tuple[tuple[str, str], ...]
    """Operator and provider of every node that ran."""
    failure: str = ""
    """Why there are no outputs."""
    kept: tuple[str, ...] = ()
    """Hints that say why the bundle keeps the model from the XNNPACK provider."""


def execute(bundle: Bundle, model: Any, folder: Path, *flags: str) -> Run:
    """Run ``model`` once with seeded inputs; files go to ``folder``."""
    onnx.save(model, folder / "model.onnx")
    random, names = np.random.default_rng(1), []
    for index, one in enumerate(model.graph.input):
        shape = [size.dim_value or UNKNOWN for size in one.type.tensor_type.shape.dim]
        names.append(str(folder / f"input{index}.npy"))
        np.save(names[-1], random.standard_normal(shape).astype(np.float32))
    words = [f"--model_path={folder / 'model.onnx'}", f"--inputs={','.join(names)}"]
    words += [f"--output_file={folder / 'output'}", f"--json={folder / 'result.json'}", *flags]
    # What ONNX Runtime leaves behind when it crashes goes with the folder.
    env = {**os.environ, "TMPDIR": str(folder)}
    done = run([*runner_here(bundle), *words], env=env, timeout=300, error=None, what=f"Running {model.graph.name}")
    if done.returncode:
        return Run((), (), " ".join(done.stderr.strip().splitlines()[-3:]) or f"exit {done.returncode}")
    answer = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return Run(
        tuple(np.load(folder / Path(one["file"]).name) for one in answer["outputs"]),
        tuple((node["operator"].rpartition(":")[2], node["provider"]) for node in answer["placement"]["nodes"]),
        kept=tuple(hint for hint in answer["placement"]["hints"] if hint.startswith(_KEPT)),
    )


_IMAGE = (1, 8, 16, 16)
_CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
_POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
_LINEAR: dict[str, Any] = {"mode": "linear"}
_STEP = 0.03


def _plain(operator: str, *shape: int | str, weights: Sequence[tuple[int, ...]] = (), **attributes: Any) -> Make:
    """An operator of one input, with constant weights and more."""
    return lambda g: g.node(operator, g.input(*shape), *(g.weights(*one) for one in weights), **attributes)


def _half_gemm(g: Graph) -> str:
    value = g.node("Cast", g.input(4, 16), to=TensorProto.FLOAT16)
    return g.node("Cast", g.node("Gemm", value, g.constant(np.ones((16, 24), np.float16))), to=TensorProto.FLOAT)


def _quantized(operator: str, *shape: int | str, dtype: Any = np.uint8, step: float = _STEP, zero: int | None = None,
               more: Callable[[Graph], list[str]] = lambda _: [], **attributes: Any) -> Make:  # fmt: skip
    """An operator between DequantizeLinear and QuantizeLinear; ``step`` and ``zero`` are the output's."""

    def make(g: Graph) -> str:
        middle = 0 if dtype is np.int8 else 128
        value = g.dequantize(g.quantize(g.input(*shape), _STEP, middle, dtype), _STEP, middle, dtype)
        value = g.node(operator, value, *more(g), **attributes)
        last = middle if zero is None else zero
        return g.dequantize(g.quantize(value, step, last, dtype), step, last, dtype)

    return make


def _weights(g: Graph, *shape: int, dtype: Any = np.int8, channels: bool = False) -> str:
    """Constant quantized weights and their DequantizeLinear."""
    zero = 0 if dtype is np.int8 else 128
    raw = g.constant((np.random.default_rng(7).integers(-99, 100, shape) + zero).astype(dtype))
    count = (shape[0],) if channels else ()
    axis: dict[str, Any] = {"axis": 0} if channels else {}
    scale, zeros = g.constant(np.full(count, 0.01, np.float32)), g.constant(np.full(count, zero, dtype))
    return g.node("DequantizeLinear", raw, scale, zeros, **axis)


def _convolution(operator: str, image: Any, weights: Any, *, channels: bool = False) -> Make:
    """A quantized convolution with inputs of one type and weights of another."""
    return _quantized(
        operator, *_IMAGE, dtype=image, step=0.1,
        more=lambda g: [_weights(g, 8, 8, 3, 3, dtype=weights, channels=channels)], **_CONV,
    )  # fmt: skip


def _scales(g: Graph) -> list[str]:
    return ["", g.constant(np.array([1, 1, 2, 2], np.float32))]


def _resize(g: Graph, *shape: int | str) -> str:
    return g.node("Resize", g.input(*shape), *_scales(g), **_LINEAR)


def _clip(*limits: float | None) -> Make:
    def make(g: Graph) -> str:
        names = ["" if one is None else g.constant(np.float32(one)) for one in limits]
        return g.node("Clip", g.node("MaxPool", g.input(*_IMAGE), **_POOL), *names)

    return make


def _whole(g: Graph) -> tuple[str, ...]:
    """a Softmax that the provider crashes on."""
    return (
        g.node("Softmax", g.input(2, "n", 10), axis=1),
        g.node("Relu", g.node("Conv", g.input(*_IMAGE), g.weights(8, 8, 3, 3), **_CONV)),
    )


def _shared(operator: str, *path: str, through: str = "", clip: Sequence[float | None] = ()) -> Make:
    """A convolution or pooling whose output is one of the model's, and is read by the operators of ``path`` too."""

    def make(g: Graph) -> tuple[str, ...]:
        conv = operator == "Conv"
        weights = [g.weights(8, 8, 3, 3), g.weights(8)] if conv else []
        first = g.node(operator, g.input(*_IMAGE), *weights, **(_CONV if conv else _POOL))
        value = g.node(through, first) if through else first
        limits = ["" if one is None else g.constant(np.float32(one)) for one in clip]
        return (*(g.node(one, value, *limits) for one in path), *([first] if len(path) < 2 else []))

    return make


def _given(operator: str, *shapes: tuple[int, ...], **attributes: Any) -> Make:
    """An operator whose weights come at run time."""
    return lambda g: g.node(operator, *(g.input(*one) for one in shapes), **attributes)


def _as_it_stands(g: Graph) -> str:
    raw = g.constant(np.random.default_rng(7).integers(-99, 100, (8, 8, 3, 3)).astype(np.int8))
    image = g.quantize(g.input(*_IMAGE), _STEP)
    value = g.node("QLinearConv", image, *g.step(_STEP), raw, *g.step(0.01), *g.step(0.1), **_CONV)
    return g.dequantize(value, 0.1)


def _matmul_add(g: Graph) -> str:
    return g.node("Add", g.node("MatMul", g.input("rows", 16), g.weights(16, 24)), g.weights(24))


FORMS = (
    # What the provider's documentation has, and what this version does wrong of it.
    Form("conv", "Conv", True, _plain("Conv", *_IMAGE, weights=[(8, 8, 3, 3), (8,)], **_CONV)),
    Form("conv-given-weights", "Conv", False, _given("Conv", _IMAGE, (8, 8, 3, 3), **_CONV)),
    Form("averagepool-counted", "AveragePool", False,
         _plain("AveragePool", *_IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)),
    Form("gemm", "Gemm", True, _plain("Gemm", 4, 16, weights=[(24, 16), (24,)], transB=1)),
    Form("gemm-given-b", "Gemm", False, _given("Gemm", (4, 16), (16, 24))),
    Form("gemm-no-c", "Gemm", False, _plain("Gemm", 4, 16, weights=[(16, 24)]), trusted=False),
    Form("gemm-rows", "Gemm", False, _plain("Gemm", "rows", 16, weights=[(16, 24), (24,)]), trusted=False),
    Form("gemm-transposed-a", "Gemm", False,
         _plain("Gemm", 16, 4, weights=[(16, 24), (24,)], transA=1), trusted=False),
    Form("gemm-matrix-c", "Gemm", False, _plain("Gemm", 24, 16, weights=[(16, 24), (24, 24)]), trusted=False),
    Form("gemm-alpha", "Gemm", False, _plain("Gemm", 4, 16, weights=[(16, 24), (24,)], alpha=0.5)),
    Form("softmax", "Softmax", True, _plain("Softmax", 2, 6, 10, axis=-1)),
    Form("softmax-12-sizes", "Softmax", False, _plain("Softmax", 2, "n", 10, axis=1), 12, trusted=False),
    Form("resize", "Resize", True, lambda g: _resize(g, 1, 8, 12, 12)),
    Form("resize-width", "Resize", False, lambda g: _resize(g, 1, 8, 12, "w"), trusted=False),
    Form("q-conv", "QLinearConv", True, _convolution("Conv", np.int8, np.int8), near=0.1001),
    Form("q-conv-as-it-stands", "QLinearConv", False, _as_it_stands),
    # A DequantizeLinear of a constant stays: what it gives is constant only within a quantized operator.
    Form("gemm-dq-weights", "Gemm", False, lambda g: g.node("Gemm", g.input(4, 16), _weights(g, 16, 24))),
    Form("random-weights", "MatMul", False,
         lambda g: g.node("MatMul", g.input(4, 16), g.node("RandomUniformLike", g.weights(16, 24), low=0.5, high=0.5))),
    # Shapes that are not fixed.
    Form("conv-width", "Conv", False, _plain("Conv", 1, 8, 16, "w", weights=[(8, 8, 3, 3)], **_CONV)),
    Form("conv-batch", "Conv", True, _plain("Conv", "n", 8, 16, 16, weights=[(8, 8, 3, 3)], **_CONV)),
    Form("softmax-last-size", "Softmax", False, _plain("Softmax", 2, 6, "n", axis=-1)),
    Form("softmax-middle-size", "Softmax", True, _plain("Softmax", 2, "n", 6, axis=-1)),
    Form("softmax-12-batch", "Softmax", True, _plain("Softmax", "n", 6, 10, axis=1), 12),
    Form("softmax-12-last-size", "Softmax", False, _plain("Softmax", 2, 6, "n", axis=1), 12, trusted=False),
    Form("matmul-rows-add", "Gemm", False, _matmul_add, trusted=False),
    # Ranks.
    Form("convtranspose-1d", "ConvTranspose", True,
         _plain("ConvTranspose", 1, 8, 16, weights=[(8, 8, 3)], kernel_shape=[3])),
    Form("matmul-a-vector", "MatMul", False, _plain("MatMul", 64, weights=[(64, 64)]), trusted=False, luck=True),
    Form("matmul-b-vector", "MatMul", True, _plain("MatMul", 4, 16, weights=[(16,)])),
    Form("matmul-vectors", "MatMul", False, _plain("MatMul", 4096, weights=[(4096,)]), trusted=False),
    # C of a Gemm.
    Form("gemm-c-rows-of-b", "Gemm", False, _plain("Gemm", 4, 1, weights=[(1, 24), (1,)]), trusted=False),
    Form("gemm-c-scalar", "Gemm", False, _plain("Gemm", 4, 16, weights=[(16, 24), ()]), trusted=False),
    Form("gemm-c-square", "Gemm", True, _plain("Gemm", 4, 16, weights=[(16, 16), (16,)])),
    # Attributes and operator sets.
    Form("resize-10", "Resize", False,
         lambda g: g.node("Resize", g.input(1, 8, 12, 12), _scales(g)[1], **_LINEAR), 10, trusted=False),
    Form("resize-sizes", "Resize", True, lambda g: g.node(
        "Resize", g.input(1, 8, 12, 12), "", "", g.constant(np.array([1, 8, 24, 24])), **_LINEAR)),
    # An activation in the node before.
    Form("clip-lower", "MaxPool", True, _clip(0.0)),
    # One that something else reads beside the activation.
    Form("conv-relu-output", "Conv", False, _shared("Conv", "Relu"), trusted=False),
    Form("conv-clip-output", "Conv", False, _shared("Conv", "Clip", clip=(0.0, 6.0)), trusted=False),
    Form("conv-identity-relu-output", "Conv", False, _shared("Conv", "Relu", through="Identity"), trusted=False),
    Form("conv-sigmoid-output", "Conv", True, _shared("Conv", "Sigmoid")),
    Form("maxpool-relu-output", "MaxPool", False, _shared("MaxPool", "Relu"), trusted=False),
    # float16.
    Form("gemm-half-no-c", "Gemm", False, _half_gemm, trusted=False),
    # Quantized.
    Form("q-conv-int8-uint8", "QLinearConv", False, _convolution("Conv", np.int8, np.uint8)),
    Form("q-conv-uint8-int8", "QLinearConv", False, _convolution("Conv", np.uint8, np.int8)),
    Form("q-conv-uint8-channels", "QLinearConv", False, _convolution("Conv", np.uint8, np.uint8, channels=True)),
    Form("q-convtranspose-int8-channels", "ConvTranspose", False,
         _convolution("ConvTranspose", np.int8, np.int8, channels=True), trusted=False),
    Form("q-maxpool-int8", "MaxPool", True, _quantized("MaxPool", *_IMAGE, dtype=np.int8, **_POOL)),
    Form("q-averagepool-int8", "QLinearAveragePool", False,
         _quantized("AveragePool", *_IMAGE, dtype=np.int8, count_include_pad=1, **_POOL)),
    Form("q-softmax-step", "QLinearSoftmax", False, _quantized("Softmax", 2, 6, 10, step=0.1, zero=0, axis=-1)),
    Form("q-softmax-middle-size", "QLinearSoftmax", True,
         _quantized("Softmax", 2, "n", 6, step=1 / 256, zero=0, axis=-1)),
    Form("q-softmax-12-size", "QLinearSoftmax", False,
         _quantized("Softmax", 2, "n", 6, step=1 / 256, zero=0, axis=1), 12, trusted=False),
    Form("q-resize-uint8", "Resize", False, _quantized("Resize", *_IMAGE, more=_scales, **_LINEAR), trusted=False),
    Form("q-resize-int8", "Resize", False, _quantized("Resize", *_IMAGE, dtype=np.int8, more=_scales, **_LINEAR),
         trusted=False),
    Form("q-resize-other-step", "Resize", True, _quantized("Resize", *_IMAGE, step=0.1, more=_scales, **_LINEAR),
         near=0.1001),  # one step
    Form("q-gemm", "QGemm", False, _quantized("Gemm", 4, 16, dtype=np.int8, more=lambda g: [_weights(g, 16, 24)])),
    Form("q-matmul", "QLinearMatMul", False,
         _quantized("MatMul", 4, 16, dtype=np.int8, more=lambda g: [_weights(g, 16, 24)])),
    # All of a model is kept from the provider, for one node.
    Form("whole-model", "Conv", False, _whole, 12, trusted=False),
)  # fmt: skip
