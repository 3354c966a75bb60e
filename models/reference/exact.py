"""What a program's outputs are in float64: where a device and the reference differ, that says who is right.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from core.formats.program import Exact, Tolerance
from models.loading import reference
from models.lowering import progress
from models.lowering.graphs import base_name, is_dequantize, is_quantize, target_name
from models.reference import tolerances
from models.zoo.schemes import Scheme

_WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}
_NAMESPACES = ("aten", "prims", "prim")
"""Of operators that compute in the type of what they are given."""
_BITS = ("aten::view.dtype", "aten::nextafter")
"""Operators whose result has another meaning in another type."""
_STEADY = (
    *("aten::scaled_dot_product_attention", "aten::dropout"),
    *("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"),
)
"""Operators that draw random numbers in training alone."""


class _UnknownError(Exception):
    """The graph has no meaning in float64."""


def _wide(value: Any) -> Any:
    """A type, or numbers, in float64; anything else as it is."""
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    return value.to(_WIDE[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in _WIDE else value


class _Wide(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a graph in float64."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._buffers: dict[str, Any] = {}
        """Each is one tensor for all nodes: some write to it."""

    def fetch_attr(self, target: str) -> Any:
        """A parameter, a buffer or a constant."""
        value = super().fetch_attr(target)
        if isinstance(value, torch.nn.Parameter):
            return _wide(value)
        return self._buffers.setdefault(target, _wide(value))

    def run_node(self, node: Any) -> Any:
        """The node's value."""
        if node.op != "call_function":
            return _wide(super().run_node(node))
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        value = node.target(*map(_wide, args), **{name: _wide(one) for name, one in kwargs.items()})
        given = any(_is_wide(self.env[one]) for one in node.all_input_nodes)
        if given and isinstance(value, torch.Tensor) and value.dtype in _WIDE and not _is_wide(value):
            raise _UnknownError
        return _wide(value)


def _is_wide(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)


def _has_meaning(node: Any) -> bool:
    """Whether a node's result in float64 is what its result in the program's types is meant to be."""
    if node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.HigherOrderOperator) or is_quantize(node) or is_dequantize(node):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True  # of sizes, or one of several results
    return (
        node.target.namespace in _NAMESPACES
        and target_name(node) not in _BITS
        and (base_name(target_name(node)) in _STEADY or torch.Tag.nondeterministic_seeded not in node.target.tags)
    )


def find(program: Any, scheme: Scheme, inputs: Sequence[Any]) -> list[Any]:
    """The outputs in float64; ``None`` for whole numbers; none at all where that is not known.

    Weights and inputs are the program's own, already rounded to its types.

    Args:
        program: exported, in its scheme, before lowering; without state.
        inputs: the reference's.
    """
    if scheme.method not in ("none", "half") or not all(map(_has_meaning, program.graph.nodes)):
        return []
    progress.at("what its outputs are in float64")
    try:
        with torch.no_grad():
            outputs = reference.flat(_Wide(program.module()).run(*(_wide(one.clone()) for one in inputs)))
    except Exception:  # noqa: BLE001  # whatever an operator raises that has no float64
        return []
    return [None if tolerances.is_whole(one) else one for one in outputs]


def beside(
    folder: Path, end: str, allowed: Sequence[Tolerance], computed: Sequence[Any], found: Sequence[Any]
) -> tuple[Tolerance, ...]:
    """The tolerances with what the outputs are in float64, in files ``exactN<end>.npy``.

    Args:
        computed: the reference's outputs.
        found: what `find` gave.
    """
    if len(found) != len(allowed):
        return tuple(allowed)
    return tuple(
        one
        if right is None
        else one.model_copy(update={"exact": _exact(folder, f"exact{index}{end}", right, got, one)})
        for index, (one, right, got) in enumerate(zip(allowed, found, computed, strict=True))
    )


def _exact(folder: Path, name: str, right: Any, got: Any, allowed: Tolerance) -> Exact:
    parts = reference.wide(right)
    stored = parts.to(got.dtype.to_real())
    # Beyond the output's own type an infinity is the right result.
    parts = torch.where(stored.isinf(), stored.double(), parts)
    numpy.save(
        folder / f"{name}.npy",
        reference.to_numpy(torch.view_as_complex(parts) if right.is_complex() else parts),
        allow_pickle=False,
    )
    ours = reference.wide(got)
    same = (parts == ours) | (parts.isnan() & ours.isnan())
    near = same | ((parts - ours).abs() <= allowed.atol + allowed.rtol * parts.abs())
    return Exact(file=f"{name}.npy", error=tolerances.farthest(parts, ours), far=not bool(near.all()))
