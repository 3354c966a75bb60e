"""How each layer moves the outputs when it gives more, and how far rounding goes in that direction. Imports torch.

A layer that gives one per cent too much moves thousands of numbers, each a little and by another amount, but always in
the same pattern. Compared with the pattern, a fault is seen that is smaller than rounding, since rounding has others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from core.formats.program import Layers
from models.loading import reference
from models.lowering import progress
from models.lowering.graphs import is_dequantize, is_quantize, module_path, source, weight_argument
from models.reference.perturbing import Measured

MOST_LAYERS = 64
"""Of deeper programs as many, evenly over their depth."""
MOST_ELEMENTS = 4096
"""Of larger outputs as many, chosen at random."""
STEP = 0.01
"""The part by which a layer's result is changed."""
_SIGMAS = 5
"""Standard deviations of rounding that are allowed."""
_ROOM = 3
"""The most that was seen in one run, times this, is allowed."""
_LEAST = 0.0025
"""The least part that counts: another polynomial for `exp` or `tanh` has a direction of its own."""
_MOST_KEPT = 1 << 30
"""Bytes of inner values that are kept, so that a run begins at its layer."""
_HALVES = (torch.float16, torch.bfloat16)


def layers(module: Any) -> list[Any]:
    """The nodes that are tried: those with weights, and other products."""
    nodes = [node for node in module.graph.nodes if weight_argument(node) is not None]
    if len(nodes) <= MOST_LAYERS:
        return nodes
    return [nodes[round(index * (len(nodes) - 1) / (MOST_LAYERS - 1))] for index in range(MOST_LAYERS)]


def _wide(value: Any) -> Any:
    """Half precision as float32."""
    if isinstance(value, torch.dtype):
        return torch.float32 if value in _HALVES else value
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value


class _Smooth(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a graph in float32, in which activations are not quantized: what a small change does is not rounded away.

    Args:
        layer: a node that gives more, by `STEP`; ``None``: each gives what it should.
    """

    def __init__(self, module: Any, layer: Any = None) -> None:
        super().__init__(module, garbage_collect_values=layer is not None)
        self._layer = layer

    def fetch_attr(self, target: str) -> Any:
        """A parameter or a constant, in float32."""
        return _wide(super().fetch_attr(target))

    def run_node(self, node: Any) -> Any:
        """The node's value."""
        if is_quantize(node) or (is_dequantize(node) and is_quantize(source(node.args[0]))):
            return self.env[node.args[0]]
        if node.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            value = node.target(*map(_wide, args), **{name: _wide(one) for name, one in kwargs.items()})
        else:
            value = _wide(super().run_node(node))
        return value * (1 + STEP) if node is self._layer else value


@dataclass(frozen=True)
class Directions:
    """Of one output."""

    names: tuple[str, ...]
    """Modules of the user, or names of nodes."""
    moves: Any
    """``[layers, elements]``: by how much a layer that gives `STEP` more moves each element."""
    elements: Any
    """Their places in the flat output."""
    limits: tuple[float, ...]
    """By what part each layer may seem to give more or less, for rounding does that."""

    def save(self, folder: Path, name: str) -> Layers:
        """Write ``<name>.npz`` and describe it."""
        scale = self.moves.abs().amax(1, keepdim=True)
        numpy.savez(
            folder / f"{name}.npz",
            names=numpy.array(self.names),
            moves=(self.moves / scale).half().numpy(),
            scale=(scale[:, 0] / STEP).numpy(),
            elements=self.elements.int().numpy(),
            limits=numpy.array(self.limits),
        )
        seen = sum(limit < STEP for limit in self.limits)
        return Layers(file=f"{name}.npz", count=len(self.names), seen=seen)


def _flat(tensor: Any) -> Any:
    return reference.wide(tensor).nan_to_num(0.0, 0.0, 0.0).flatten()


def _flat_outputs(result: Any) -> list[Any]:
    return [_flat(one) for one in reference.numbers(reference.flat(result))]


def _runs(module: Any, inputs: Sequence[Any], nodes: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
    """The outputs, and those with each node's value changed."""
    given = [_wide(one) for one in inputs]
    with torch.no_grad():
        plain = _Smooth(module)
        right = _flat_outputs(plain.run(*given))
        before: Mapping[Any, Any] = plain.env
        size = sum(one.nbytes for one in before.values() if isinstance(one, torch.Tensor))
        changed = []
        earlier: dict[Any, Any] = {}
        every = iter(module.graph.nodes)
        for number, node in enumerate(nodes, 1):
            progress.at(f"what one per cent of a layer does, layer {number} of {len(nodes)}")
            if size <= _MOST_KEPT:
                while (one := next(every)) is not node:
                    earlier[one] = before[one]
                start = dict(earlier)
                earlier[node] = before[node]
            else:
                start = {}
            run = _Smooth(module, node).run(*given, initial_env=start)
            changed.append(_flat_outputs(run))
    return right, changed


def find(program: Any, inputs: Sequence[Any], measured: Sequence[Measured]) -> list[Directions | None]:
    """For each output the directions of all layers that move it; ``None`` if no layer does.

    Args:
        program: exported, in its scheme, before lowering; without state.
        inputs: the reference's.
        measured: what `models.reference.perturbing.measure` has found with them.
    """
    module = program.module()
    nodes = layers(module)
    right, changed = _runs(module, inputs, nodes)
    names = [module_path(node) or str(node.name) for node in nodes]
    return [
        _of_output([each[index] - one for each in changed], names, measured[index]) for index, one in enumerate(right)
    ]


def _of_output(moves: Sequence[Any], names: Sequence[str], measured: Measured) -> Directions | None:
    counted = [index for index, one in enumerate(moves) if 0 < float(one.square().sum()) < float("inf")]
    if not counted:
        return None
    size = moves[0].numel()
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    elements = order[:MOST_ELEMENTS].sort().values
    chosen = torch.stack([moves[index][elements] for index in counted])
    return Directions(
        names=tuple(names[index] for index in counted),
        moves=chosen,
        elements=elements,
        limits=limits(chosen, *([_flat(one)[elements] for one in each] for each in (measured.noises, measured.flips))),
    )


def limits(moves: Any, noises: Sequence[Any], flips: Sequence[Any]) -> tuple[float, ...]:
    """By what part each layer may seem to give more or less.

    A few runs do not say well how far rounding goes along one layer's direction. So the layers are taken together:
    along any of them, rounding goes some times as far as if it were independent in each element. And along each it may
    go as far as the worst run did in any: of ten outputs, a flipped rounding follows some layer's pattern by chance.

    Args:
        moves: ``[layers, elements]``.
        noises: what perturbed runs changed in these elements.
        flips: the same of runs with one flipped rounding.
    """
    power = moves.square().sum(1)
    most = torch.zeros_like(power)
    for one in (*noises, *flips):
        most = torch.maximum(most, ((moves @ one) / power).abs())
    worst = max((float(one.square().mean()) for one in (*noises, *flips)), default=0.0)
    deviation = (worst / power).sqrt()
    if noises:
        together = torch.stack(list(noises))
        along = ((together @ moves.T) / power).square().mean(0)
        alone = together.square().mean() / power
        times = (along / alone).mean() if float(together.square().sum()) else 0.0
        deviation = torch.maximum(deviation, torch.maximum(along, times * alone).sqrt())
    found = STEP * torch.maximum(_SIGMAS * deviation, _ROOM * most)
    return tuple(round(float(one), 6) for one in found.clamp(min=_LEAST))
