"""What each operator gave on the device beside what PyTorch computes: the first one beyond its tolerance.

The reference is the program as it was before it was lowered, in the ETRecord. A quantized model is compared with the
same quantized model, so that only what the runtime computes otherwise is a difference. Imports torch.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from models.inspection import origins
from models.inspection.dump import DELEGATE, Value
from models.inspection.origins import Node, Origin, handles_of, load, origin_of, silent

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
        claims = list(itertools.chain.from_iterable(self._by_handle.values()))
        for claim in claims:
            if claim.at is not None:
                self._places.setdefault(claim.at, claim)
        for claim in self._places.values():
            claim.put = claim.got
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
    else:
        wanted = wanted.double() if node is None else wanted.double().clamp(node.least, node.most)
    difference, size = (got.double() - wanted).abs(), _rms(wanted)
    beyond = (difference - (node.scale / 2 if node is not None else 0.0)).clamp(min=0.0)
    return _rms(beyond) / (size or 1.0), float(difference.max()), size


FLOAT = 1e-4
"""The largest relative error in float32, root mean square: sums in another order stay far below it."""
COARSE = {torch.float16: 2**-8, torch.bfloat16: 2**-5}
"""The same in types of 16 bits."""
STEPS = 0.01
"""The largest error of a quantized result beyond rounding, root mean square, in quantization steps."""
INSIDE = 3.0
"""For what a delegate gave as a whole: how many times the error of `Claim.noise`, since its layers add up."""


@dataclass(frozen=True)
class Gap:
    """How far an operator's result is from PyTorch's."""

    name: str
    """``FullyConnected #2 @0``: the second of its kind in the delegate that instruction 0 calls."""
    instruction: int
    delegated: bool
    origin: Origin
    shape: tuple[int, ...]
    dtype: str
    error: float
    """Root mean square of the differences, by that of PyTorch's values."""
    max_abs: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it is within the tolerance."""
        return self.error <= self.limit

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; an error without bound is ``null``."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in {**asdict(self), "ok": self.ok}.items()
        }


def compare(given: Sequence[Value], names: Mapping[int, str], record: Path, program: Path | None) -> tuple[Gap, ...]:
    """The gap of every operator whose result is known on both sides, in the order in which they ran.

    Args:
        names: of the instructions, as `dump.names` gives them.
        program: the ``.pte``; without it nothing inside of delegates is compared.
    """
    with silent():
        etrecord = load(record)
        graphs = origins.read(program) if program is not None else {}
        module, handles = origins.edge_module(etrecord), origins.handles_of_instructions(etrecord)
        outputs = _counts(module, names, handles)
        outputs |= {int(number): count for number, count in etrecord._instruction_id_to_num_outs_map["forward"].items()}
        claims = list(_claims(_results(given, names, outputs), graphs, handles))
        with torch.no_grad():
            Replay(module, claims).settle(*etrecord._representative_inputs[0])
    return tuple(_gap_of(claim) for claim in claims if claim.at is not None)


def _counts(module: Any, names: Mapping[int, str], handles: Mapping[int, Any]) -> dict[int, int]:
    """How many results each kernel has, by its instruction."""
    found: dict[int, int] = {}
    nodes = origins.by_handle(module)
    for instruction, name in names.items():
        for node in (node for handle in handles.get(instruction, ()) for node in nodes.get(handle, ())):
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.name.rpartition("::")[2] == name.partition(".")[0]:
                found[instruction] = max(1, len(schema.returns))
    return found


def _claims(
    values: Sequence[Value], graphs: Mapping[int, Sequence[Node]], handles: Mapping[int, Any]
) -> Iterator[Claim]:
    numbers: dict[tuple[int, str], int] = {}
    for value in values:
        nodes = graphs.get(value.instruction, ())
        node = nodes[value.node] if 0 <= value.node < len(nodes) else None
        if node is None and value.node >= 0:
            continue
        name = value.name
        if node is not None:
            number = numbers[value.instruction, node.kind] = numbers.get((value.instruction, node.kind), 0) + 1
            name = f"{node.kind} #{number}"
        own = handles.get(value.instruction, ()) if node is None else (node.handle,)
        yield Claim(value, node, f"{name} @{value.instruction}", own, whole=node is None and name == DELEGATE)


def _gap_of(claim: Claim) -> Gap:
    node, tensor = claim.node, claim.value.tensor
    usual = COARSE.get(tensor.dtype, FLOAT)
    if node is not None and node.scale:
        usual = STEPS * node.scale / (claim.size or 1.0)
    return Gap(
        claim.name,
        claim.value.instruction,
        claim.value.node >= 0,
        origin_of(claim.at, claim.handle),
        tuple(claim.got.shape),
        str(tensor.dtype).removeprefix("torch."),
        claim.error,
        claim.max_abs,
        usual + (INSIDE if claim.whole else 1.0) * claim.noise,
    )


def _results(given: Sequence[Value], names: Mapping[int, str], outputs: Mapping[int, int]) -> list[Value]:
    """What instructions and nodes gave, with names: of arguments, which upstream's engine logs all, the last ones.

    Args:
        names: of the instructions.
        outputs: how many results an instruction has, where it is more than one.
    """
    whole: dict[int, list[Value]] = {}
    found: list[Value] = []
    for one in given:
        if isinstance(one.tensor, torch.Tensor):
            (found if one.node >= 0 else whole.setdefault(one.instruction, [])).append(one)
    inside = {one.instruction for one in found}
    for instruction, every in whole.items():
        name = names.get(instruction, "")
        if instruction not in inside:
            found += [replace(one, name=name) for one in every[-outputs.get(instruction, 1) :]]
    return sorted(found, key=lambda one: one.instruction)
