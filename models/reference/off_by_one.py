"""What one activation does that rounds to the next integer on another CPU. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from models.lowering.graphs import is_dequantize, source, weight_argument


class _Flips(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a quantized graph and keeps the largest product of an activation's step and a weight."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.largest = 0.0

    def run_node(self, node: Any) -> Any:
        """The node's value, as the base class computes it."""
        result = super().run_node(node)
        position = weight_argument(node)
        if position is not None:
            activation = source(node.args[position - 1])
            if is_dequantize(activation):
                weight = self.env[node.args[position]]
                self.largest = max(self.largest, self._step(activation) * float(weight.abs().max()))
        return result

    def _step(self, dequantize: Any) -> float:
        """The largest scale of the integers that ``dequantize`` turns into floats."""
        for argument in dequantize.args[1:]:
            value = self.env[argument] if isinstance(argument, torch.fx.Node) else argument
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return float(value.abs().max())
            if isinstance(value, float):
                return abs(value)
        return 0.0


def largest(program: Any, inputs: Sequence[Any]) -> float:
    """The most that one flipped activation changes a layer's output: its step times the layer's largest weight.

    Args:
        program: quantized and exported, before lowering.
        inputs: those of the reference.
    """
    flips = _Flips(program.module())
    with torch.no_grad():
        flips.run(*inputs)
    return flips.largest
