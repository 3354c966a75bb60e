"""What rounding does to a program's outputs: measured in PyTorch, by rounding each result a little differently.

Another processor adds in another order, and another library approximates a function by another polynomial. Where such a
result lies near the middle between two integers, its rounding flips, and later layers carry that on. Imports torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch

from core.formats.program import Layers
from models.loading import reference
from models.lowering import graphs, progress

RUNS = 3
"""Perturbed runs. Each of them perturbs all layers; of deep programs they are alike."""
SITES = 6
"""Places where one rounding is flipped."""
_FEW = 3
"""Of a program with more places: its perturbed runs flip many roundings already."""
_ORDER = 0.28
"""A sum of K terms, added one after another, is off by this times sqrt(K) units of rounding of the sums' own size.

With terms of one size, partial sums grow as sqrt(i) and each addition rounds by 0.4 units on average (uniformly within
one): sqrt(sum over i of 0.16 i) is 0.28 K, and the sum itself is sqrt(K).
"""
_MATRICES = ("aten::matmul", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


@dataclass(frozen=True)
class Moved:
    """How far one output moved."""

    largest: float
    """Of an element."""
    rms: float
    """Root mean square over the elements."""
    gain: float = 0.0
    """By what part all elements together are larger or smaller (the factor of least squares, less 1; unsigned)."""


def _moved(output: Any, counterpart: Any) -> Moved:
    """The distance of an output from its counterpart; not a number counts as no distance."""
    one, other = reference.wide(output), reference.wide(counterpart)
    far = (one - other).nan_to_num(0.0, 0.0, 0.0)
    if not far.numel():
        return Moved(0.0, 0.0)
    right = other.nan_to_num(0.0, 0.0, 0.0)
    power = float(right.square().sum())
    gain = abs(float((far * right).sum())) / power if power else 0.0
    return Moved(float(far.abs().max()), float(far.square().mean().sqrt()), gain)


def _terms(node: Any) -> int:
    """How many products a number of a layer's result is the sum of; 1 for other operators."""
    position = graphs.weight_argument(node)
    weight = node.args[position].meta.get("val") if position is not None else None
    if weight is None or not weight.dim():
        return 1
    if graphs.base_name(graphs.target_name(node)) in _MATRICES:
        return int(weight.shape[-2]) if weight.dim() > 1 else int(weight.shape[0])
    return max(1, int(weight.numel()) // max(1, int(weight.shape[0])))


def _computes(node: Any) -> bool:
    """Whether the node's result is rounded: it neither moves, quantizes nor measures."""
    return (
        node.op == "call_function"
        and not (graphs.moves_only(node) or graphs.is_dequantize(node) or graphs.is_quantize(node))
        and "::choose_qparams" not in graphs.target_name(node)
    )


def _sites(module: Any) -> list[Any]:
    """The nodes that quantize what was computed: all of a few, else the first, the middle and the last one."""
    nodes = [node for node in module.graph.nodes if graphs.is_quantize(node)]
    if len(nodes) <= SITES:
        return nodes
    return [nodes[index * (len(nodes) - 1) // (_FEW - 1)] for index in range(_FEW)]


class _Flipped(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a quantized graph, in which one rounding gives the next integer."""

    def __init__(self, module: Any, site: Any, seed: int) -> None:
        super().__init__(module)
        self._site = site
        self._random = torch.Generator().manual_seed(seed)

    def run_node(self, node: Any) -> Any:
        """The node's value; of the site with one element changed by one."""
        result = super().run_node(node)
        if node is not self._site or not result.numel():
            return result
        flat = result.flatten()
        inner = (flat != flat.max()).nonzero().flatten()
        if not inner.numel():
            return result
        index = inner[int(torch.randint(inner.numel(), (1,), generator=self._random))]
        # In the result's own memory order, as views of it expect.
        return result.clone().put_(index, flat[index] + 1)


class _Perturbed(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a graph; each result in floating point is off by what rounding may do to it."""

    def __init__(self, module: Any, seed: int) -> None:
        super().__init__(module)
        self._random = torch.Generator().manual_seed(seed)

    def run_node(self, node: Any) -> Any:
        """The node's value, perturbed."""
        result = super().run_node(node)
        if not (isinstance(result, torch.Tensor) and result.is_floating_point() and _computes(node)):
            return result
        unit = torch.finfo(result.dtype).eps / 2
        exact = result.float()
        noise = torch.randn(result.shape, generator=self._random)
        terms = _terms(node)
        if terms > 1:
            size = float(exact.square().mean().sqrt()) if exact.numel() else 0.0
            off = noise * (_ORDER * math.sqrt(terms) * unit * size)
        else:
            off = noise.clamp(-2, 2) * unit * exact
        rounded = (exact + off).nan_to_num(math.nan, math.inf, -math.inf)
        return torch.empty_like(result).copy_(rounded)  # in the result's own memory order, as views of it expect


@dataclass(frozen=True)
class Measured:
    """How far roundings move one output."""

    noise: Moved
    """All layers perturbed, in `RUNS` runs."""
    flip: Moved
    """One rounding flipped, at the place where it matters most."""
    where: str
    """That place."""
    noises: tuple[Any, ...] = ()
    """What each perturbed run changed in the first execution's output."""
    flips: tuple[Any, ...] = ()
    """The same of each run with one flipped rounding."""


def _worse(one: Moved, other: Moved) -> Moved:
    return Moved(max(one.largest, other.largest), max(one.rms, other.rms), max(one.gain, other.gain))


def _place(node: Any) -> str:
    """What reads a quantized value: the path of a module, or the node's name."""
    readers = list(node.users)
    for _ in range(4):
        readers = [reader for one in readers for reader in (one.users if graphs.is_dequantize(one) else [one])]
    return next(filter(None, map(graphs.module_path, [*readers, node])), str(node.name))


def measure(program: Any, inputs: Sequence[Any], executions: Sequence[int] = (1,)) -> list[Measured]:
    """How far perturbed runs in PyTorch move each output.

    Args:
        program: exported, in its scheme, before lowering.
        inputs: the reference's.
        executions: those that are compared; a program with state moves further with each.
    """
    module = program.module()

    def run(interpreter: Any) -> dict[int, list[Any]]:
        found = {}
        with torch.no_grad(), graphs.unchanged(module):
            for number in range(1, max(executions) + 1):
                result = reference.flat(interpreter.run(*(one.clone() for one in inputs)))
                if number in executions:
                    found[number] = [one.clone() for one in reference.numbers(result)]
        return found

    progress.at("what rounding does to it, in PyTorch")
    plain = run(torch.fx.Interpreter(module))

    def far(interpreter: Any) -> list[tuple[Moved, Any]]:
        runs = run(interpreter)
        each = [map(_moved, outputs, plain[number]) for number, outputs in runs.items()]
        first = min(plain)
        changes = [
            reference.wide(one) - reference.wide(other) for one, other in zip(runs[first], plain[first], strict=True)
        ]
        worst = [functools.reduce(_worse, column) for column in zip(*each, strict=True)]
        return list(zip(worst, changes, strict=True))

    found = [Measured(Moved(0.0, 0.0), Moved(0.0, 0.0), "")] * len(plain[max(executions)])
    for seed in range(RUNS):
        progress.at(f"what rounding does to it, run {seed + 1} of {RUNS}")
        found = [
            replace(one, noise=_worse(one.noise, now), noises=(*one.noises, change))
            for one, (now, change) in zip(found, far(_Perturbed(module, seed)), strict=True)
        ]
    sites = _sites(module)
    for number, site in enumerate(sites):
        progress.at(f"what one flipped rounding does, place {number + 1} of {len(sites)}")
        found = [
            replace(
                one,
                flip=_worse(one.flip, now),
                where=_place(site) if now.largest > one.flip.largest else one.where,
                flips=(*one.flips, change),
            )
            for one, (now, change) in zip(found, far(_Flipped(module, site, number)), strict=True)
        ]
    return found


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


def layers(module: Any) -> list[Any]:
    """The nodes that are tried: those with weights, and other products."""
    nodes = [node for node in module.graph.nodes if graphs.weight_argument(node) is not None]
    if len(nodes) <= MOST_LAYERS:
        return nodes
    return [nodes[round(index * (len(nodes) - 1) / (MOST_LAYERS - 1))] for index in range(MOST_LAYERS)]


class Widened(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a graph in wider types, by default in float32 instead of half precision."""

    types: Mapping[Any, Any] = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)

    def wide(self, value: Any) -> Any:
        """A type, or numbers, by `types`; anything else as it is."""
        if isinstance(value, torch.dtype):
            return self.types.get(value, value)
        known = isinstance(value, torch.Tensor) and value.dtype in self.types
        return value.to(self.types[value.dtype]) if known else value

    def run_node(self, node: Any) -> Any:
        """The node's value."""
        if node.op != "call_function":
            return self.wide(super().run_node(node))
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        return node.target(*map(self.wide, args), **{name: self.wide(one) for name, one in kwargs.items()})


class _Smooth(Widened):
    """Runs a graph in float32, in which activations are not quantized: what a small change does is not rounded away.

    Args:
        layer: a node that gives more, by `STEP`; ``None``: each gives what it should.
    """

    def __init__(self, module: Any, layer: Any = None) -> None:
        super().__init__(module, garbage_collect_values=layer is not None)
        self._layer = layer

    def run_node(self, node: Any) -> Any:
        """The node's value."""
        if graphs.is_quantize(node) or (graphs.is_dequantize(node) and graphs.is_quantize(graphs.source(node.args[0]))):
            return self.env[node.args[0]]
        value = super().run_node(node)
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
    with torch.no_grad():
        plain = _Smooth(module)
        given = [plain.wide(one) for one in inputs]
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
            changed.append(_flat_outputs(_Smooth(module, node).run(*given, initial_env=start)))
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
    names = [graphs.module_path(node) or str(node.name) for node in nodes]
    return [_of_output([each[at] - one for each in changed], names, measured[at]) for at, one in enumerate(right)]


def _of_output(moves: Sequence[Any], names: Sequence[str], measured: Measured) -> Directions | None:
    counted = [index for index, one in enumerate(moves) if 0 < float(one.square().sum()) < float("inf")]
    if not counted:
        return None
    order = torch.randperm(moves[0].numel(), generator=torch.Generator().manual_seed(0))
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
