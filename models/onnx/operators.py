"""A model for every row of the XNNPACK provider's table of operators, and for every limit it states.

The table is that of the provider's page in ONNX Runtime's documentation, "Supported ops". A case says what the table
promises (``documented``); ``docs/onnx.md`` shows beside it what a bundle did. Imports the onnx package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
"""The newest that ONNX Runtime 1.21 reads."""
MICROSOFT = "com.microsoft"
"""ONNX Runtime's own operators."""

_SEED = 6


class Graph:
    """A model under construction: constants are seeded random numbers, values go by generated names."""

    def __init__(self, name: str, opset: int) -> None:
        self.name, self.opset = name, opset
        self.part = ""
        """Put before the names of the nodes that follow."""
        self._random = numpy.random.default_rng(_SEED)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._known: list[Any] = []
        self._count = 0

    def _new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def input(self, *shape: int | str, dtype: int = TensorProto.FLOAT) -> str:
        """An input of the model; a dimension given as text is dynamic."""
        name = f"input{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def constant(self, value: Any) -> str:
        """``value`` as an initializer."""
        name = self._new("constant")
        self._constants.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def weights(self, *shape: int) -> str:
        """Seeded random float32."""
        return self.constant(self._random.standard_normal(shape).astype(numpy.float32))

    def integers(self, *shape: int) -> str:
        """Seeded random int8."""
        return self.constant(self._random.integers(-100, 100, shape).astype(numpy.int8))

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node of one output, whose name is returned."""
        output = self._new("value")
        label = self._new(f"{self.part}{operator.lower()}_")
        self._nodes.append(helper.make_node(operator, list(inputs), [output], name=label, domain=domain, **attributes))
        return output

    def shaped(self, value: str, dtype: int, *shape: int) -> str:
        """Say what ``value`` is, where shape inference does not know the operator."""
        self._known.append(helper.make_tensor_value_info(value, dtype, list(shape)))
        return value

    def quantize(self, value: str, scale: float, zero: int = 0, dtype: Any = numpy.int8) -> str:
        """``QuantizeLinear`` with constant scale and zero point."""
        return self.node("QuantizeLinear", value, *self.step(scale, zero, dtype))

    def dequantize(self, value: str, scale: float, zero: int = 0, dtype: Any = numpy.int8) -> str:
        """``DequantizeLinear`` with constant scale and zero point."""
        return self.node("DequantizeLinear", value, *self.step(scale, zero, dtype))

    def step(self, scale: float, zero: int = 0, dtype: Any = numpy.int8) -> tuple[str, str]:
        """Constants for a quantization's scale and zero point."""
        return self.constant(numpy.float32(scale)), self.constant(dtype(zero))

    def model(self, *outputs: str, dtype: int = TensorProto.FLOAT) -> Any:
        """The whole ``onnx.ModelProto``, checked."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            self._inputs,
            [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
            self._constants,
            value_info=self._known,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self._nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="slipway")
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model


OPSET = 18

Maker = Callable[[Graph], str]


@dataclass(frozen=True)
class Case:
    """One operator in one form."""

    operator: str
    """As the provider's table names it."""
    name: str
    title: str
    documented: bool
    """Whether the table says that the provider takes it."""
    make: Maker
    opset: int = OPSET
    alone: bool = False
    """Whether it changes what becomes of other operators in the same model."""

    def model(self) -> Any:
        """The ``onnx.ModelProto``: one operator between float inputs and a float output."""
        graph = Graph(self.name, self.opset)
        return graph.model(self.make(graph))


def _image(g: Graph) -> str:
    return g.input(1, 8, 16, 16)


def _pool(operator: str, **attributes: Any) -> Maker:
    def make(g: Graph) -> str:
        return g.node(operator, _image(g), **{"kernel_shape": [2, 2], "strides": [2, 2], **attributes})

    return make


def _pool_1d(operator: str) -> Maker:
    return lambda g: g.node(operator, g.input(1, 8, 32), kernel_shape=[2], strides=[2])


def _conv(
    operator: str = "Conv", *, weights: str = "constant", bias: str = "constant", groups: int = 1, then: str = ""
) -> Maker:
    """8 channels to 8, 3x3, padded; ``weights`` and ``bias``: ``constant``, ``given`` at run time, or ``none``."""

    def make(g: Graph) -> str:
        image = _image(g)
        shape = (8, 8 // groups, 3, 3)
        inputs = [image, g.weights(*shape) if weights == "constant" else g.input(*shape)]
        if bias != "none":
            inputs.append(g.weights(8) if bias == "constant" else g.input(8))
        value = g.node(operator, *inputs, kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=groups)
        if then == "Clip":
            return g.node("Clip", value, g.constant(numpy.float32(0)), g.constant(numpy.float32(6)))
        return g.node(then, value) if then else value

    return make


def _half_conv(g: Graph) -> str:
    """A convolution in float16 between float32 inputs and outputs; numbers that float16 holds well."""
    image = g.node("Cast", _image(g), to=TensorProto.FLOAT16)
    weights = g.constant((numpy.random.default_rng(7).integers(-4, 5, (8, 8, 3, 3)) / 16).astype(numpy.float16))
    bias = g.constant(numpy.arange(8, dtype=numpy.float16))
    value = g.node("Conv", image, weights, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return g.node("Cast", value, to=TensorProto.FLOAT)


def _conv_1d(g: Graph) -> str:
    return g.node("Conv", g.input(1, 8, 32), g.weights(8, 8, 3), g.weights(8), kernel_shape=[3], pads=[1, 1])


def _conv_3d(g: Graph) -> str:
    return g.node("Conv", g.input(1, 4, 6, 8, 8), g.weights(4, 4, 3, 3, 3), g.weights(4), kernel_shape=[3, 3, 3])


def _softmax(axis: int, middle: int | str = 6) -> Maker:
    return lambda g: g.node("Softmax", g.input(2, middle, 10), axis=axis)


def _resize(
    mode: str = "linear",
    coordinates: str = "half_pixel",
    scales: tuple[float, ...] = (1, 1, 2, 2),
    width: int | str = 12,
) -> Maker:
    def make(g: Graph) -> str:
        value = g.input(*(1, 8, 12, width)[4 - len(scales) :])
        factors = g.constant(numpy.array(scales, numpy.float32))
        return g.node("Resize", value, "", factors, mode=mode, coordinate_transformation_mode=coordinates)

    return make


def _gemm(
    *, weights: str = "constant", c: tuple[int, ...] | None = (24,), rows: int | str = 4, **attributes: Any
) -> Maker:
    def make(g: Graph) -> str:
        left = (16, rows) if attributes.get("transA") else (rows, 16)
        shape = (24, 16) if attributes.get("transB") else (16, 24)
        inputs = [g.input(*left), g.weights(*shape) if weights == "constant" else g.input(*shape)]
        return g.node("Gemm", *inputs, *([g.weights(*c)] if c else []), **attributes)

    return make


def _matmul(left: tuple[int, ...], right: tuple[int, ...], *, weights: str = "constant") -> Maker:
    return lambda g: g.node("MatMul", g.input(*left), g.weights(*right) if weights == "constant" else g.input(*right))


# Scales of the quantized cases: the inputs are standard normal, the weights whole numbers below 100 in steps of 0.01.
_IN, _WEIGHT, _OUT = 0.03, 0.01, 0.1


def _weight(g: Graph, dtype: Any, channels: bool, constant: bool, *shape: int) -> tuple[str, str, str]:
    """Quantized weights with their scales and zero points, for a convolution."""
    count = (shape[0],) if channels else ()
    scale = g.constant(numpy.full(count, _WEIGHT, numpy.float32))
    zero = g.constant(numpy.full(count, 0 if dtype is numpy.int8 else 128, dtype))
    if not constant:
        return g.quantize(g.input(*shape), _WEIGHT), scale, zero
    raw = numpy.random.default_rng(7).integers(-99, 100, shape)
    return g.constant((raw + (0 if dtype is numpy.int8 else 128)).astype(dtype)), scale, zero


def _qlinear_conv(
    dtype: Any = numpy.int8, *, channels: bool = False, constant: bool = True, bias: bool = True
) -> Maker:
    """``QLinearConv`` as it stands in a file, 3x3; ``channels``: a scale for each channel of the weights."""

    def make(g: Graph) -> str:
        zero = 0 if dtype is numpy.int8 else 128
        step_in, step_out = g.step(_IN, zero, dtype), g.step(_OUT, zero, dtype)
        image = g.node("QuantizeLinear", _image(g), *step_in)
        weight = _weight(g, dtype, channels, constant, 8, 8, 3, 3)
        inputs = [image, *step_in, *weight, *step_out]
        if bias:
            inputs.append(g.constant(numpy.arange(8, dtype=numpy.int32) * 100))
        value = g.node("QLinearConv", *inputs, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return g.node("DequantizeLinear", value, *step_out)

    return make


def _qdq_conv(operator: str, dtype: Any = numpy.int8, *, channels: bool = False) -> Maker:
    """A float convolution between DequantizeLinear and QuantizeLinear: the form in which exporters quantize."""

    def make(g: Graph) -> str:
        zero = 0 if dtype is numpy.int8 else 128
        image = g.dequantize(g.quantize(_image(g), _IN, zero, dtype), _IN, zero, dtype)
        weight, scale, weight_zero = _weight(g, dtype, channels, True, 8, 8, 3, 3)
        axis: dict[str, Any] = {"axis": 0} if channels else {}
        weights = g.node("DequantizeLinear", weight, scale, weight_zero, **axis)
        count = (8,) if channels else ()
        bias_scale = g.constant(numpy.full(count, _IN * _WEIGHT, numpy.float32))
        bias_zero = g.constant(numpy.zeros(count, numpy.int32))
        raw = g.constant(numpy.arange(8, dtype=numpy.int32) * 100)
        bias = g.node("DequantizeLinear", raw, bias_scale, bias_zero, **axis)
        value = g.node(operator, image, weights, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return g.dequantize(g.quantize(value, _OUT, zero, dtype), _OUT, zero, dtype)

    return make


def _qdq(operator: str, scale: float, zero: int, dtype: Any = numpy.int8, **attributes: Any) -> Maker:
    """A float operator of one input between DequantizeLinear and QuantizeLinear; the output's step is given."""

    def make(g: Graph) -> str:
        middle = 0 if dtype is numpy.int8 else 128
        value = g.dequantize(g.quantize(_image(g), _IN, middle, dtype), _IN, middle, dtype)
        value = g.node(operator, value, **attributes)
        return g.dequantize(g.quantize(value, scale, zero, dtype), scale, zero, dtype)

    return make


_POOLED: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


def _microsoft_pool(g: Graph) -> str:
    step = g.step(_IN, 0, numpy.int8)
    value = g.node("QuantizeLinear", _image(g), *step)
    value = g.node("QLinearAveragePool", value, *step, *step, domain=MICROSOFT, **_POOLED)
    g.shaped(value, TensorProto.INT8, 1, 8, 8, 8)
    return g.node("DequantizeLinear", value, *step)


def _microsoft_softmax(dtype: Any) -> Maker:
    def make(g: Graph) -> str:
        middle, low = (0, -128) if dtype is numpy.int8 else (128, 0)
        step_in, step_out = g.step(_IN, middle, dtype), g.step(1 / 256, low, dtype)
        value = g.node("QuantizeLinear", g.input(2, 6, 10), *step_in)
        value = g.node("QLinearSoftmax", value, *step_in, *step_out, domain=MICROSOFT, axis=-1, opset=13)
        g.shaped(value, TensorProto.INT8 if dtype is numpy.int8 else TensorProto.UINT8, 2, 6, 10)
        return g.node("DequantizeLinear", value, *step_out)

    return make


CASES = (
    Case("AveragePool", "averagepool-2d", "2D", True, _pool("AveragePool")),
    Case("AveragePool", "averagepool-2d-19", "2D, opset 19", True, _pool("AveragePool"), 19),
    Case("AveragePool", "averagepool-2d-22", "2D, opset 22", True, _pool("AveragePool"), 22),
    Case("AveragePool", "averagepool-padded", "2D, padding left out of the average", True,
         _pool("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    Case("AveragePool", "averagepool-counted", "2D, padding counted", True,
         _pool("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)),
    Case("AveragePool", "averagepool-1d", "1D", False, _pool_1d("AveragePool")),
    Case("Conv", "conv-2d", "2D, constant weights and bias", True, _conv()),
    Case("Conv", "conv-2d-22", "2D, constant weights and bias, opset 22", True, _conv(), 22),
    Case("Conv", "conv-no-bias", "2D, without a bias", True, _conv(bias="none")),
    Case("Conv", "conv-depthwise", "2D, depthwise", True, _conv(groups=8)),
    Case("Conv", "conv-grouped", "2D, two groups", True, _conv(groups=2)),
    Case("Conv", "conv-relu", "2D, then Relu", True, _conv(then="Relu")),
    Case("Conv", "conv-clip", "2D, then Clip to 0..6", True, _conv(then="Clip")),
    Case("Conv", "conv-given-weights", "2D, weights given at run time", False, _conv(weights="given")),
    Case("Conv", "conv-given-bias", "2D, bias given at run time", False, _conv(bias="given")),
    Case("Conv", "conv-1d", "1D", False, _conv_1d),
    Case("Conv", "conv-3d", "3D", False, _conv_3d),
    Case("Conv", "conv-half-bias", "2D, float16, with a bias", True, _half_conv),
    Case("ConvTranspose", "convtranspose-2d", "2D, constant weights and bias", True, _conv("ConvTranspose")),
    Case("ConvTranspose", "convtranspose-no-bias", "2D, without a bias", True, _conv("ConvTranspose", bias="none")),
    Case("ConvTranspose", "convtranspose-given-weights", "2D, weights given at run time", False,
         _conv("ConvTranspose", weights="given")),
    Case("MaxPool", "maxpool-2d", "2D", True, _pool("MaxPool")),
    Case("MaxPool", "maxpool-2d-22", "2D, opset 22", True, _pool("MaxPool"), 22),
    Case("MaxPool", "maxpool-padded", "2D, padded", True, _pool("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    Case("MaxPool", "maxpool-1d", "1D", False, _pool_1d("MaxPool")),
    Case("Softmax", "softmax-12", "opset 12, axis 1", True, _softmax(1), 12),
    Case("Softmax", "softmax-12-sizes", "opset 12, axis 1, a size not fixed", True, _softmax(1, "sizes"), 12,
         alone=True),
    Case("Softmax", "softmax-last", "opset 13, last axis", True, _softmax(-1), 13),
    Case("Softmax", "softmax-first", "opset 13, another axis", False, _softmax(1), 13),
    Case("QLinearConv", "qlinearconv", "all constant, one scale, int8", True, _qlinear_conv()),
    Case("QLinearConv", "qlinearconv-channels", "all constant, a scale for each channel, int8", True,
         _qlinear_conv(channels=True)),
    Case("QLinearConv", "qlinearconv-uint8", "all constant, one scale, uint8", True, _qlinear_conv(numpy.uint8)),
    Case("QLinearConv", "qlinearconv-no-bias", "all constant, without a bias, int8", True, _qlinear_conv(bias=False)),
    Case("QLinearConv", "qlinearconv-qdq", "Conv between DequantizeLinear and QuantizeLinear, int8", True,
         _qdq_conv("Conv")),
    Case("QLinearConv", "qlinearconv-qdq-channels", "the same, a scale for each channel", True,
         _qdq_conv("Conv", channels=True)),
    Case("QLinearConv", "qlinearconv-qdq-uint8", "the same, one scale, uint8", True, _qdq_conv("Conv", numpy.uint8)),
    Case("QLinearConv", "qlinearconv-given-weights", "weights given at run time", False, _qlinear_conv(constant=False)),
    Case("Resize", "resize-bilinear", "4D, bilinear", True, _resize()),
    Case("Resize", "resize-bilinear-19", "4D, bilinear, opset 19", True, _resize(), 19),
    Case("Resize", "resize-align-corners", "4D, bilinear, align_corners", True, _resize("linear", "align_corners")),
    Case("Resize", "resize-2d", "2D, bilinear", True, _resize(scales=(2, 2))),
    Case("Resize", "resize-width", "4D, bilinear, the width not fixed", True, _resize(width="width")),
    Case("Resize", "resize-nearest", "4D, nearest", False, _resize("nearest", "asymmetric")),
    Case("Gemm", "gemm", "2D, constant B and C", True, _gemm()),
    Case("Gemm", "gemm-transposed", "2D, B transposed", True, _gemm(transB=1)),
    Case("Gemm", "gemm-no-bias", "2D, without C", True, _gemm(c=None)),
    Case("Gemm", "gemm-transposed-a", "2D, A transposed", True, _gemm(transA=1)),
    Case("Gemm", "gemm-rows", "2D, the number of rows not fixed", True, _gemm(rows="rows")),
    Case("Gemm", "gemm-matrix-c", "2D, C a whole matrix", True, _gemm(rows=24, c=(24, 24))),
    Case("Gemm", "gemm-alpha", "2D, alpha 0.5", False, _gemm(alpha=0.5)),
    Case("Gemm", "gemm-given-b", "2D, B given at run time", False, _gemm(weights="given")),
    Case("MatMul", "matmul-2d", "2D, constant B", True, _matmul((4, 16), (16, 24))),
    Case("MatMul", "matmul-given-b", "2D, B given at run time", False, _matmul((4, 16), (16, 24), weights="given")),
    Case("MatMul", "matmul-3d", "3D", False, _matmul((2, 4, 16), (16, 24))),
    Case("QLinearAveragePool", "qlinearaveragepool", "2D, int8, as it stands", True, _microsoft_pool),
    Case("QLinearAveragePool", "qlinearaveragepool-qdq",
         "AveragePool between DequantizeLinear and QuantizeLinear, int8", True, _qdq("AveragePool", _IN, 0, **_POOLED)),
    Case("QLinearAveragePool", "qlinearaveragepool-qdq-uint8", "the same, uint8", True,
         _qdq("AveragePool", _IN, 128, numpy.uint8, **_POOLED)),
    Case("QLinearAveragePool", "qlinearaveragepool-qdq-counted", "the same, uint8, padding counted", True,
         _qdq("AveragePool", _IN, 128, numpy.uint8, count_include_pad=1, **_POOLED)),
    Case("QLinearSoftmax", "qlinearsoftmax", "last axis, int8, as it stands", True, _microsoft_softmax(numpy.int8)),
    Case("QLinearSoftmax", "qlinearsoftmax-uint8", "last axis, uint8, as it stands", True,
         _microsoft_softmax(numpy.uint8)),
    Case("QLinearSoftmax", "qlinearsoftmax-qdq", "Softmax between DequantizeLinear and QuantizeLinear, int8", True,
         _qdq("Softmax", 1 / 256, -128, axis=-1)),
    Case("QLinearSoftmax", "qlinearsoftmax-qdq-uint8", "the same, uint8", True,
         _qdq("Softmax", 1 / 256, 0, numpy.uint8, axis=-1)),
    Case("QLinearConvTranspose", "qlinearconvtranspose-qdq",
         "ConvTranspose between DequantizeLinear and QuantizeLinear, int8", True, _qdq_conv("ConvTranspose")),
    Case("QLinearConvTranspose", "qlinearconvtranspose-qdq-uint8", "the same, uint8", True,
         _qdq_conv("ConvTranspose", numpy.uint8)),
    Case("QLinearConvTranspose", "qlinearconvtranspose-qdq-channels", "the same, a scale for each channel, int8", True,
         _qdq_conv("ConvTranspose", channels=True)),
)  # fmt: skip
"""In the order of the provider's table."""

OPERATORS = tuple(dict.fromkeys(case.operator for case in CASES))


def quantization_step(case: Case) -> float:
    """The step in which the case's output is quantized; 0 for float."""
    from onnx import numpy_helper

    model = case.model()
    last = next(node for node in model.graph.node if model.graph.output[0].name in node.output)
    if last.op_type != "DequantizeLinear":
        return 0.0
    scale = next(one for one in model.graph.initializer if one.name == last.input[1])
    return float(numpy_helper.to_array(scale))


@dataclass(frozen=True)
class Batch:
    """Cases of one operator set side by side in one model: an emulated runner starts slowly."""

    opset: int
    cases: tuple[Case, ...]

    def model(self) -> Any:
        """The ``onnx.ModelProto``; its outputs are the cases', in their order."""
        graph = Graph(f"opset-{self.opset}", self.opset)
        outputs = []
        for case in self.cases:
            graph.part = f"{case.name}/"
            outputs.append(case.make(graph))
        return graph.model(*outputs)


def batches() -> list[Batch]:
    """All cases, by operator set; those that must be alone each by itself."""
    opsets = sorted({case.opset for case in CASES})
    together = [tuple(case for case in CASES if case.opset == opset and not case.alone) for opset in opsets]
    return [
        *(Batch(cases[0].opset, cases) for cases in together if cases),
        *(Batch(case.opset, (case,)) for case in CASES if case.alone),
    ]
