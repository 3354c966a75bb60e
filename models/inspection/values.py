"""What each operator gave on the device beside what PyTorch computes: the first one beyond its tolerance.

The reference is the program as it was before it was lowered, in the ETRecord. A quantized model is compared with the
same quantized model, so that only what the runtime computes otherwise is a difference. Imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from models.inspection import graph
from models.inspection.dump import DELEGATE, Value
from models.inspection.graph import Node
from models.inspection.origins import Origin, load, origin_of, silent
from models.inspection.replay import Claim, Replay, handles_of

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
        made = {**asdict(self), "ok": self.ok}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in made.items()
        }


def compare(
    given: Sequence[Value],
    names: Mapping[int, str],
    record: Path,
    program: Path | None,
) -> tuple[Gap, ...]:
    """The gap of every operator whose result is known on both sides, in the order in which they ran.

    Args:
        names: of the instructions, as `dump.names` gives them.
        program: the ``.pte``; without it nothing inside of delegates is compared.
    """
    with silent():
        etrecord = load(record)
        graphs = graph.read(program) if program is not None else {}
        edge = etrecord.edge_dialect_program
        module = (edge["forward"] if isinstance(edge, dict) else edge).module()
        handles = {int(number): each for number, each in etrecord._debug_handle_map["forward"].items()}
        outputs = _counts(module, names, handles)
        outputs |= {int(number): count for number, count in etrecord._instruction_id_to_num_outs_map["forward"].items()}
        claims = list(_claims(_results(given, names, outputs), graphs, handles))
        with torch.no_grad():
            Replay(module, claims).settle(*etrecord._representative_inputs[0])
    return tuple(_gap_of(claim) for claim in claims if claim.at is not None)


def _counts(module: Any, names: Mapping[int, str], handles: Mapping[int, Any]) -> dict[int, int]:
    """How many results each kernel has, by its instruction."""
    found: dict[int, int] = {}
    nodes: dict[int, list[Any]] = {}
    for node in module.graph.nodes:
        for handle in handles_of(node):
            nodes.setdefault(handle, []).append(node)
    for instruction, name in names.items():
        own = handles.get(instruction, ())
        for node in (node for handle in ((own,) if isinstance(own, int) else own) for node in nodes.get(handle, ())):
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
        own = handles.get(value.instruction, ()) if node is None else node.handle
        own = [own] if isinstance(own, int) else list(dict.fromkeys(own))
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
        origin_of([claim.at], (claim.handle,)),
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
            count = outputs.get(instruction, 1)
            found += [replace(one, name=name) for one in every[-count:]]
    return sorted(found, key=lambda one: one.instruction)
