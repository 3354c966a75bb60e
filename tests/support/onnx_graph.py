"""Small ONNX models node by node. Imports the onnx package."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
"""The newest that ONNX Runtime 1.21 reads."""
_SEED = 6


class Graph:
    """A model under construction: constants are seeded random numbers, values go by generated names."""

    def __init__(self, name: str, opset: int) -> None:
        self.name, self.opset = name, opset
        self._random = numpy.random.default_rng(_SEED)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
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

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output, whose name is returned."""
        output = self._new("value")
        label = self._new(f"{operator.lower()}_")
        self._nodes.append(helper.make_node(operator, list(inputs), [output], name=label, **attributes))
        return output

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
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="slipway")
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model
