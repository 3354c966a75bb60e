"""The graph of each delegate as the program stores it: which node of the model every operator of a profile came from.

XNNPACK's delegate gives upstream's Inspector no map from its operators to the model's nodes. But the program has one:
each node of a delegate's graph keeps the debug handle of the node that it was made from, and XNNPACK runs them in that
order.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import re
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMES = {
    "Conv2d": ("convolution", "fullyconnected"),  # of 1x1, which is a product
    "DepthwiseConv2d": ("convolution",),
    "ConvTranspose2d": ("deconvolution",),
    "FullyConnected": ("fullyconnected", "dynamicfullyconnected"),
    "StaticTranspose": ("transpose",),
    "StaticReshape": ("staticreshape", "reshape", "copy"),
    "StaticSlice": ("slice", "staticslice"),
    "StaticConstantPad": ("constantpad",),
    "StaticResizeBilinear2D": ("resizebilinear",),
    "AvgPooling2d": ("averagepooling",),
    "MaxPooling2d": ("maxpooling",),
    "ArgMaxPooling2d": ("argmaxpooling",),
    "GlobalAvgPooling2d": ("mean", "globalaveragepooling", "staticmean", "staticreduce"),
    "ScaledDotProductAttention": ("scaleddotproductattention",),
    "PReLU": ("prelu", "leakyrelu"),
    "Concatenate": ("concatenate", "copy"),
    "SquareRoot": ("squareroot", "sqrt"),
    "ReciprocalSquareRoot": ("reciprocalsquareroot", "rsqrt"),
    "Copy": ("copy",),
}
"""How a profile's names of a kind of node begin, without blanks; a kind that is not here has its own name."""
_UNARY = frozenset(
    [
        *("Abs", "Ceiling", "Clamp", "Convert", "Cos", "ELU", "Exp", "Floor", "Gelu", "Hardswish", "LeakyReLU", "Log"),
        *("Negate", "ReciprocalSquareRoot", "Sigmoid", "Sin", "Square", "SquareRoot", "Tanh"),
    ]
)
_BINARY = frozenset(("Add", "Div", "Maximum", "Minimum", "Multiply", "PReLU", "Subtract"))
"""What some versions of XNNPACK call ``Unary Elementwise`` and ``Binary Elementwise``, all of them."""
_FLATBUFFER = slice(10, 14), slice(14, 18)
"""Where XNNPACK's header has offset and size of the graph (upstream's ``XNNHeader``)."""


@dataclass(frozen=True)
class Node:
    """A node of a delegate's graph: its kind in upstream's schema without ``XNN``, and its debug handle."""

    kind: str
    handle: int
    scale: float = 0.0
    """Of its quantized result; 0: the result is not quantized per tensor."""
    zero_point: int = 0
    step: float = 0.0
    """``scale``, or of what only converts its input: the input's."""
    least: float = -math.inf
    most: float = math.inf
    """The activation that the exporter has fused into it: results are at least and at most this."""


@dataclass(frozen=True)
class Match:
    """The node of an operator in a profile."""

    index: int
    """Its position in the delegate's graph."""
    handle: int
    sure: bool
    """The profile has as many operators of this kind as the graph has nodes."""


def _begins(name: str, kind: str) -> bool:
    kind = re.sub(r"(?<=Concatenate)\d+$", "", kind)
    words = re.sub(r"[^a-z0-9]", "", name.partition(" (")[0].lower())
    if words in ("unaryelementwise", "binaryelementwise"):
        return kind in (_UNARY if words[0] == "u" else _BINARY)
    return words in _NAMES.get(kind, (kind.lower(),))


def match(names: Sequence[str], nodes: Sequence[Node]) -> dict[str, Match]:
    """The node of each operator, by kind and order.

    Args:
        names: the delegate's own, as they ran: ``Fully Connected (NC, F32) GEMM #1``.
    """

    families = [frozenset(node.kind for node in nodes if _begins(name, node.kind)) for name in names]
    groups: list[frozenset[str]] = []  # kinds whose operators cannot be distinguished by name
    for family in families:
        joined = family.union(*(group for group in groups if group & family))
        groups = [*(group for group in groups if not group & joined), joined]
    sure = {
        kind: sum(node.kind in group for node in nodes) == sum(family <= group for family in families if family)
        for group in groups
        for kind in group
    }
    found: dict[str, Match] = {}
    at = 0
    for name, family in zip(names, families, strict=True):
        index = next((i for i in range(at, len(nodes)) if nodes[i].kind in family), None)
        if index is not None:
            found[name] = Match(index, nodes[index].handle, sure[nodes[index].kind])
            at = index + 1
    return found


def read(program: Path, method: str = "forward") -> dict[int, tuple[Node, ...]]:
    """The nodes of XNNPACK's delegates, by the instruction that calls them. Imports the exporter's packages."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    file = deserialize_pte_binary(program.read_bytes()).program
    plan = next((plan for plan in file.execution_plan if plan.name == method), None)
    if plan is None:
        return {}
    payloads: dict[int, bytes] = {}
    for number, instruction in enumerate(plan.chains[0].instructions):
        called = getattr(instruction.instr_args, "delegate_index", None)
        if called is not None and plan.delegates[called].id == "XnnpackBackend":
            payloads[number] = bytes(file.backend_delegate_data[plan.delegates[called].processed.index].data)
    return {number: _nodes(graph) for number, graph in zip(payloads, _graphs(payloads.values()), strict=True)}


def _nodes(graph: dict[str, Any]) -> tuple[Node, ...]:
    quantized: dict[int, dict[str, Any]] = {}
    for each in graph.get("xvalues", ()):
        value = each["xvalue_union"]
        if value.get("quant_params_type") == "PerTensorQuant":
            quantized[value["tensor_value"].get("id_out", 0)] = value["quant_params"]
    found = []
    for node in graph.get("xnodes", ()):
        kind, values = str(node["xnode_union_type"]).removeprefix("XNN"), node["xnode_union"]
        params = quantized.get(values.get("output_id", -1), {})
        taken = quantized.get(values.get("input_id", -1), {}) if kind == "Convert" else {}
        limits = node.get("output_min_max") or {}
        found.append(
            Node(
                kind,
                int(node.get("debug_handle", 0)),
                _float(params.get("scale", 0)),
                int(params.get("zero_point", 0)),
                _float((params or taken).get("scale", 0)),
                _float(limits["output_min"]) if limits else -math.inf,
                _float(limits["output_max"]) if limits else math.inf,
            )
        )
    return tuple(found)


def _float(bits: int) -> float:
    """A float32 from its bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _graphs(payloads: Any) -> list[dict[str, Any]]:
    """Each payload's graph as JSON, by upstream's schema."""
    from executorch.backends.xnnpack import serialization
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = folder / "schema.fbs"
        text = importlib.resources.files(serialization).joinpath("runtime_schema.fbs").read_text(encoding="utf-8")
        # flatc writes floats with six decimals; their bits are exact.
        schema.write_text(re.sub(r"\b(scale|output_min|output_max):float;", r"\1:uint;", text), encoding="utf-8")
        for payload in payloads:
            start, size = (int.from_bytes(payload[place], "little") for place in _FLATBUFFER)
            binary = folder / "graph.bin"
            binary.write_bytes(payload[start : start + size])
            _flatc_decompile(name, str(schema), str(binary), ["--raw-binary", "--strict-json", "--defaults-json"])
            text = (folder / "graph.json").read_text(encoding="utf-8")
            # JSON has no infinities; flatc writes them nevertheless.
            found.append(json.loads(re.sub(r"(?<=: )(-?)inf\b", r"\1Infinity", text)))
    return found
