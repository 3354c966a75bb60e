"""The exported program on PyTorch, each layer with the inputs that the device gave it. Imports torch.

Differences do not add up from layer to layer then: what an operator's result is compared with was computed from the
very values that the operator had on the device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from models.inspection.dump import Value
from models.inspection.graph import Node

_FUSED = ("batch_norm", "relu", "hardtanh", "clamp", "getitem", "quantize_per_tensor")
_LAYERS = ("conv", "linear", "addmm", "mm", "add.", "sub.", "mul.", "div.")
_QUANTIZES = re.compile(r"(?<!de)quantize_(per_|affine)")
_BLOCKS = "torchao.dequantize_affine"
_SEED = 20
_NEXT = 0.01
"""The share of quantized values that rounds to the next step in `noise`."""


@dataclass(eq=False)
class Claim:
    """A value of the device, and the node of PyTorch's graph that it belongs to, as far as it is known."""

    value: Value
    node: Node | None
    """Of a delegate's graph."""
    name: str
    handles: Sequence[int]
    """Debug handles of the nodes that it may be."""
    whole: bool = False
    """What a delegate gave that keeps no values of its own nodes."""
    put: Any = None
    """The device's value with the dimensions of the node whose result it replaces."""
    at: Any = None
    """The node with the smallest error among those that share a debug handle."""
    handle: int = -1
    error: float = math.inf
    """Root mean square of the differences, by ``size``."""
    max_abs: float = 0.0
    size: float = 0.0
    """Root mean square of what PyTorch computes."""
    got: Any = None
    """The device's value with the dimensions of ``wanted``."""
    wanted: Any = None
    """What PyTorch computes, before it is quantized."""
    noise: float = 0.0
    """What ``error`` would be if some quantized values on the way rounded to the next step."""


class Replay(torch.fx.Interpreter):  # type: ignore[misc]  # torch carries no types here
    """Runs a graph: first as it is, to find each value's node; then each layer with the device's inputs; then noisily.

    Several nodes may share a value: a convolution, its activation and its rounding are one operator on the device. For
    that value they read each other's results, not the device's.
    """

    def __init__(self, module: Any, claims: Sequence[Claim]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._by_handle: dict[int, list[Claim]] = {}
        for claim in claims:
            for handle in dict.fromkeys(claim.handles):
                self._by_handle.setdefault(handle, []).append(claim)
        self._claims = {node: self._claims_of(node) for node in self.module.graph.nodes}
        self._places: dict[Any, Claim] = {}
        """The nodes whose results are replaced by the device's."""
        self._own: dict[tuple[Claim, Any], Any] = {}
        """Results that are computed without a claim's own value, where that differs."""
        self._random: torch.Generator | None = None

    @property
    def quantizes(self) -> bool:
        """Whether anything is quantized while the program runs."""
        return any(_QUANTIZES.search(str(node.target)) for node in self.module.graph.nodes)

    def settle(self, *inputs: Any) -> None:
        """Find the node of each value, and its error with the inputs that the device had."""
        self.run(*inputs)
        for claims in self._by_handle.values():
            for claim in claims:
                if claim.at is not None:
                    self._places.setdefault(claim.at, claim)
        for claim in self._places.values():
            claim.put = claim.got
        for claims in self._by_handle.values():
            for claim in claims:
                claim.at, claim.error = None, math.inf
        self._own.clear()
        self.run(*inputs)
        if self.quantizes:
            self._own.clear()
            self._random = torch.Generator().manual_seed(_SEED)
            self.run(*inputs)

    def run_node(self, node: Any) -> Any:
        """What PyTorch computes, or what the device gave instead."""
        result = self._computed(node, None)
        for claim, handle in self._claims[node].items():
            own = result
            if any(self._read(claim, one) is not self.env[one] for one in node.all_input_nodes):
                own = self._own[claim, node] = self._computed(node, claim)
            if isinstance(own, torch.Tensor):
                self._meet(claim, handle, node, own)
        placed = self._places.get(node)
        if placed is not None and isinstance(result, torch.Tensor):
            self._own.setdefault((placed, node), result)
            return _given(placed, result)
        return result

    def _read(self, claim: Claim | None, node: Any) -> Any:
        """A node's result, for the value of ``claim``: without what the device gave for that same value."""
        if claim is not None and self._places.get(node, claim) is claim:
            return self._own.get((claim, node), self.env[node])
        return self.env[node]

    def _computed(self, node: Any, claim: Claim | None) -> Any:
        args, kwargs = (
            torch.fx.node.map_arg(each, lambda one: self._read(claim, one)) for each in (node.args, node.kwargs)
        )
        if _BLOCKS in str(node.target) and node.args[0].op == "get_attr" and 1 < args[1][-1] < args[0].shape[-1]:
            # XNNPACK stores the scales of blocks of weights in bfloat16.
            args = (*args[:2], args[2].bfloat16().to(args[2].dtype), *args[3:])
        result = getattr(self, node.op)(node.target, args, kwargs)
        if self._random is not None and _QUANTIZES.search(str(node.target)):
            known = any(each.node is not None and each.node.scale for each in self._claims[node])
            return result if known else _next_step(result, self._random)
        return result

    def _meet(self, claim: Claim, handle: int, node: Any, result: Any) -> None:
        """Compare with what the node may have given on the device."""
        wanted = result
        if claim.node is not None and claim.node.scale and "decomposed.quantize_per_tensor" in str(node.target):
            wanted = self._read(claim, node.args[0])  # before it was rounded
        if self._random is not None:
            if claim.at is node and claim.wanted.shape == wanted.shape:
                claim.noise = max(claim.noise, _rms(wanted.double() - claim.wanted.double()) / (claim.size or 1.0))
            return
        for got in _orders(claim.value.tensor, wanted):
            error, largest, size = _gap(got, wanted, claim.node)
            if claim.at is None or error < claim.error:
                claim.at, claim.handle, claim.error, claim.max_abs, claim.size = node, handle, error, largest, size
                claim.got, claim.wanted = got, wanted.detach().clone()

    def _claims_of(self, node: Any) -> dict[Claim, int]:
        """The claims that may be the node's, with the debug handle that says so."""
        found: dict[Claim, int] = {}
        if node.op != "call_function":
            return found
        whole = node.all_input_nodes[:1] if "getitem" in str(node.target) else []  # of several results
        for handle in [*handles_of(node), *(each for one in whole for each in handles_of(one)), *self._fused(node)]:
            for claim in self._by_handle.get(handle, ()):
                found.setdefault(claim, handle)
        return found

    def _fused(self, node: Any) -> list[int]:
        """Handles of the layer that the exporter may have fused ``node`` into, so that its result is this node's."""
        while any(word in str(node.target) for word in _FUSED) and node.all_input_nodes:
            if any(not claim.whole for handle in handles_of(node) for claim in self._by_handle.get(handle, ())):
                return []  # the device gave its value apart
            node = node.all_input_nodes[0]
            if any(word in str(node.target) for word in _LAYERS):
                return handles_of(node)
        return []


def handles_of(node: Any) -> list[int]:
    """The debug handles of a node of PyTorch's graph."""
    found = node.meta.get("debug_handle")
    return [] if found is None else [found] if isinstance(found, int) else list(found)


def _next_step(result: Any, random: torch.Generator) -> Any:
    """Quantized values of which some have rounded to one of the next steps."""
    drawn = torch.rand(result.shape, generator=random)
    steps = (drawn < _NEXT / 2).int() - (drawn > 1 - _NEXT / 2).int()
    limits = torch.iinfo(result.dtype)
    return (result.int() + steps).clamp(limits.min, limits.max).to(result.dtype)


def _given(claim: Claim, result: Any) -> Any:
    """The device's value in the form of PyTorch's ``result``; this itself where the device's is not a number."""
    got, node = claim.put, claim.node
    if got.is_floating_point() and not bool(torch.isfinite(got).all()):
        return result
    if node is not None and node.scale and result.is_floating_point():
        got = (got.double() - node.zero_point) * node.scale
    return got.to(result.dtype).reshape(result.shape)


def _rms(tensor: Any) -> float:
    found = float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0
    return math.inf if math.isnan(found) else found


def _orders(tensor: Any, reference: Any) -> list[Any]:
    """``tensor`` with the dimensions of ``reference``: XNNPACK's images have their channels last."""
    found = [tensor] if tensor.shape == reference.shape else []
    if tensor.dim() == 4 and tensor.permute(0, 3, 1, 2).shape == reference.shape:
        found.append(tensor.permute(0, 3, 1, 2))
    return found if tensor.numel() else []


def _gap(got: Any, wanted: Any, node: Node | None) -> tuple[float, float, float]:
    """Relative error, largest difference, and root mean square of what PyTorch computes.

    A quantized result differs by what remains after half a step: so much is rounding, which nobody can tell from the
    result alone.
    """
    if node is not None and node.scale:
        integers = torch.iinfo(got.dtype)
        least, most = ((limit - node.zero_point) * node.scale for limit in (integers.min, integers.max))
        got = (got.double() - node.zero_point) * node.scale
        if wanted.is_floating_point():
            wanted = wanted.double().clamp(node.least, node.most).clamp(least, most)
        else:
            wanted = (wanted.double() - node.zero_point) * node.scale
        difference = (got - wanted).abs()
        size = _rms(wanted)
        return _rms((difference - node.scale / 2).clamp(min=0.0)) / (size or 1.0), float(difference.max()), size
    wanted = wanted.double()
    if node is not None:
        wanted = wanted.clamp(node.least, node.most)
    difference = got.double() - wanted
    size = _rms(wanted)
    return _rms(difference) / (size or 1.0), float(difference.abs().max()), size
