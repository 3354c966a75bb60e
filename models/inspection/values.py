"""What each operator gave on the device beside what PyTorch computes: the first one beyond its tolerance.

The reference is the program as it was before it was lowered, in the ETRecord. A quantized model is compared with the
same quantized model, so that only what the runtime computes otherwise is a difference. Imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from models.inspection import graph
from models.inspection.dump import DELEGATE, Value
from models.inspection.graph import Node
from models.inspection.origins import Origin, load, origin_of, silent

FLOAT = 1e-4
"""The largest relative error in float32, root mean square: sums in another order stay far below it."""
COARSE = 4e-3
"""The same in float16, and behind layers that quantize: 2^-8."""
STEPS = 0.3
"""The largest error of a quantized result, root mean square, in quantization steps: ties that round otherwise."""


_FUSED = ("batch_norm", "relu", "hardtanh", "clamp", "getitem", "quantize_per_tensor")
_LAYERS = ("conv", "linear", "addmm", "mm", "add.", "sub.", "mul.", "div.")


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
        made = {**asdict(self), "ok": self.ok}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in made.items()
        }


class _Capture(torch.fx.Interpreter):  # type: ignore[misc]  # torch carries no types here
    """Runs a graph and keeps every tensor that it computes, by the debug handle of its node."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.kept: dict[int, list[tuple[Any, Any]]] = {}

    def run_node(self, node: Any) -> Any:
        result = super().run_node(node)
        handle = node.meta.get("debug_handle")
        if node.op == "call_function" and handle is not None:
            for each in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(each, torch.Tensor):
                    for one in {*((handle,) if isinstance(handle, int) else handle), *self._fused(node)}:
                        self.kept.setdefault(one, []).append((node, each.detach().clone()))
        return result

    def _fused(self, node: Any) -> list[int]:
        """Handles of the layer that the exporter may have fused ``node`` into, so that its result is this node's."""
        while any(word in str(node.target) for word in _FUSED) and node.all_input_nodes:
            node = node.all_input_nodes[0]
            handle = node.meta.get("debug_handle")
            if isinstance(handle, int) and any(word in str(node.target) for word in _LAYERS):
                return [handle]
        return []


def compare(
    given: Sequence[Value],
    names: Mapping[int, str],
    record: Path,
    program: Path | None,
    scheme: str,
    limit: float | None = None,
) -> tuple[Gap, ...]:
    """The gap of every operator whose result is known on both sides, in the order in which they ran.

    Args:
        names: of the instructions, as `dump.names` gives them.
        program: the ``.pte``; without it nothing inside of delegates is compared.
        scheme: how the program is quantized; empty if nobody knows.
        limit: instead of the usual tolerances.
    """
    with silent():
        etrecord = load(record)
        graphs = graph.read(program) if program is not None else {}
        edge = etrecord.edge_dialect_program
        edge = edge["forward"] if isinstance(edge, dict) else edge
        capture = _Capture(edge.module())
        with torch.no_grad():
            capture.run(*etrecord._representative_inputs[0])
    handles = {int(number): each for number, each in etrecord._debug_handle_map["forward"].items()}
    coarse = scheme not in ("", "fp32") or any(node.scale for nodes in graphs.values() for node in nodes)
    found = []
    numbers: dict[tuple[int, str], int] = {}
    outputs = {int(number): count for number, count in etrecord._instruction_id_to_num_outs_map["forward"].items()}
    for value in _results(given, names, outputs):
        nodes = graphs.get(value.instruction, ())
        node = nodes[value.node] if 0 <= value.node < len(nodes) else None
        if node is None and value.node >= 0:
            continue
        name = value.name
        if node is not None:
            numbers[value.instruction, node.kind] = numbers.get((value.instruction, node.kind), 0) + 1
            name = f"{node.kind} #{numbers[value.instruction, node.kind]}"
        own = handles.get(value.instruction, ()) if node is None else node.handle
        best = _nearest(value, node, [own] if isinstance(own, int) else list(dict.fromkeys(own)), capture.kept, coarse)
        if best is not None:
            gap = replace(best, name=f"{name} @{value.instruction}")
            found.append(gap if limit is None else replace(gap, limit=limit))
    return tuple(found)


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
            count = outputs.get(instruction, 1) if name == DELEGATE else 1
            found += [replace(one, name=name) for one in every[-count:]]
    return sorted(found, key=lambda one: one.instruction)


def _nearest(
    value: Value,
    node: Node | None,
    handles: Sequence[int],
    kept: Mapping[int, list[tuple[Any, Any]]],
    coarse: bool,
) -> Gap | None:
    """The gap to the nearest of PyTorch's values that the operator may have been: several nodes share a handle."""
    best: Gap | None = None
    for handle in handles:
        for _, reference in kept.get(handle, ()):
            got = _in_order_of(value.tensor, reference)
            if got is None:
                continue
            got, wanted = _real(got, reference, node)
            if not wanted.numel():
                continue
            scale = _rms(wanted)
            difference = got - wanted
            error = _rms(difference) / (scale or 1.0)
            limit = _limit(value.tensor, node, scale, coarse)
            if best is None or error < best.error:
                largest = float(difference.abs().max())
                origin = origin_of([kept[handle][0][0]], (handle,))
                dtype = str(value.tensor.dtype).removeprefix("torch.")
                best = Gap(
                    "", value.instruction, value.node >= 0, origin, tuple(got.shape), dtype, error, largest, limit
                )
    return best


def _limit(tensor: Any, node: Node | None, scale: float, coarse: bool) -> float:
    if node is not None and node.step:
        return STEPS * node.step / scale if scale else STEPS * node.step
    return COARSE if coarse or tensor.dtype == torch.float16 else FLOAT


def _rms(tensor: Any) -> float:
    found = float(tensor.square().mean().sqrt())
    return math.inf if math.isnan(found) else found


def _in_order_of(tensor: Any, reference: Any) -> Any:
    """``tensor`` with the dimensions of ``reference``: XNNPACK's images have their channels last."""
    if tensor.shape == reference.shape:
        return tensor
    if tensor.dim() == 4 and tensor.permute(0, 3, 1, 2).shape == reference.shape:
        return tensor.permute(0, 3, 1, 2)
    return None


def _real(tensor: Any, reference: Any, node: Node | None) -> tuple[Any, Any]:
    """Both as real numbers in float64: what the reference is after the activation and the rounding of ``node``."""
    got, wanted = tensor.double(), reference.double()
    if node is None:
        return got, wanted
    if not node.scale:
        return got, wanted.clamp(node.least, node.most)
    integers = torch.iinfo(tensor.dtype)
    if reference.is_floating_point():
        wanted = wanted.clamp(node.least, node.most)
        wanted = (torch.round(wanted / node.scale) + node.zero_point).clamp(integers.min, integers.max)
    return (got - node.zero_point) * node.scale, (wanted - node.zero_point) * node.scale
