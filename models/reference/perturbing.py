"""What rounding does to a program's outputs: measured in PyTorch, by rounding each result a little differently.

Another processor adds in another order, and another library approximates a function by another polynomial. Where such a
result lies near the middle between two integers, its rounding flips, and later layers carry that on. Imports torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from models.loading import reference
from models.lowering import progress, state
from models.lowering.graphs import (
    base_name,
    is_dequantize,
    is_quantize,
    module_path,
    moves_only,
    target_name,
    weight_argument,
)

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


def moved(outputs: Sequence[Any], others: Sequence[Any]) -> list[Moved]:
    """The distance of each output from its counterpart; not a number counts as no distance."""
    return [_moved(reference.wide(one), reference.wide(other)) for one, other in zip(outputs, others, strict=True)]


def _moved(one: Any, other: Any) -> Moved:
    far = (one - other).nan_to_num(0.0, 0.0, 0.0)
    if not far.numel():
        return Moved(0.0, 0.0)
    right = other.nan_to_num(0.0, 0.0, 0.0)
    power = float(right.square().sum())
    gain = abs(float((far * right).sum())) / power if power else 0.0
    return Moved(float(far.abs().max()), float(far.square().mean().sqrt()), gain)


def _terms(node: Any) -> int:
    """How many products a number of a layer's result is the sum of; 1 for other operators."""
    position = weight_argument(node)
    weight = node.args[position].meta.get("val") if position is not None else None
    if weight is None or not weight.dim():
        return 1
    if base_name(target_name(node)) in _MATRICES:
        return int(weight.shape[-2]) if weight.dim() > 1 else int(weight.shape[0])
    return max(1, int(weight.numel()) // max(1, int(weight.shape[0])))


def _computes(node: Any) -> bool:
    """Whether the node's result is rounded: it neither moves, quantizes nor measures."""
    return (
        node.op == "call_function"
        and not (moves_only(node) or is_dequantize(node) or is_quantize(node))
        and "::choose_qparams" not in target_name(node)
    )


def _sites(module: Any) -> list[Any]:
    """The nodes that quantize what was computed: all of a few, else the first, the middle and the last one."""
    nodes = [node for node in module.graph.nodes if is_quantize(node)]
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
        readers = [reader for one in readers for reader in (one.users if is_dequantize(one) else [one])]
    return next((path for path in map(module_path, readers) if path), "") or module_path(node) or str(node.name)


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
        with torch.no_grad(), state.unchanged(module):
            for number in range(1, max(executions) + 1):
                result = reference.flat(interpreter.run(*(one.clone() for one in inputs)))
                outputs = [one.clone() for one in reference.numbers(result)]
                if number in executions:
                    found[number] = outputs
        return found

    progress.at("what rounding does to it, in PyTorch")
    plain = run(torch.fx.Interpreter(module))

    def far(interpreter: Any) -> list[tuple[Moved, Any]]:
        runs = run(interpreter)
        each = [moved(outputs, plain[number]) for number, outputs in runs.items()]
        first = min(plain)
        changes = [
            reference.wide(one) - reference.wide(other) for one, other in zip(runs[first], plain[first], strict=True)
        ]
        worst = [functools.reduce(_worse, column) for column in zip(*each, strict=True)]
        return list(zip(worst, changes, strict=True))

    count = len(plain[max(executions)])
    found = [Measured(Moved(0.0, 0.0), Moved(0.0, 0.0), "")] * count
    for seed in range(RUNS):
        progress.at(f"what rounding does to it, run {seed + 1} of {RUNS}")
        noise = far(_Perturbed(module, seed))
        found = [
            replace(one, noise=_worse(one.noise, now), noises=(*one.noises, change))
            for one, (now, change) in zip(found, noise, strict=True)
        ]
    sites = _sites(module)
    for number, site in enumerate(sites):
        progress.at(f"what one flipped rounding does, place {number + 1} of {len(sites)}")
        flips = far(_Flipped(module, site, number))
        found = [
            replace(
                one,
                flip=_worse(one.flip, now),
                where=_place(site) if now.largest > one.flip.largest else one.where,
                flips=(*one.flips, change),
            )
            for one, (now, change) in zip(found, flips, strict=True)
        ]
    return found
