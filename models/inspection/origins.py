"""Where an operator of a run came from: its module, source line and PyTorch operators, by upstream's ETRecord."""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import logging
import math
import re
import struct
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.console import shown
from core.errors import ProgramError
from core.paths import ROOT
from core.plain import one_line
from models.inspection.dump import DELEGATE, NATIVE, OPERATOR, Execution

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


def read(program: Path) -> dict[int, tuple[Node, ...]]:
    """The nodes of XNNPACK's delegates, by the instruction that calls them. Imports the exporter's packages."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    file = deserialize_pte_binary(program.read_bytes()).program
    plan = next((plan for plan in file.execution_plan if plan.name == "forward"), None)
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
        limits = node.get("output_min_max") or {}
        found.append(
            Node(
                kind,
                int(node.get("debug_handle", 0)),
                _float(params.get("scale", 0)),
                int(params.get("zero_point", 0)),
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


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_EXPORT_AGAIN = "./inv export --model NAME --force, then the deploy again; or --etrecord FILE"


@dataclass(frozen=True)
class Origin:
    """What an operator was in PyTorch."""

    handles: tuple[int, ...] = ()
    """Debug handles: numbers that the exporter gives the nodes of the model."""
    operators: tuple[str, ...] = ()
    """``aten.linear.default``; several if the delegate has fused them, or if one line made many."""
    module: str = ""
    """``encoder.layers.0 (Linear)``; several are separated by commas."""
    source: str = ""
    """``model.py:40``, the innermost line outside of installed packages."""
    sure: bool = True
    """False: found by kind and order, and the delegate ran another number of that kind than its graph has."""
    node: int = -1
    """Position in the delegate's graph; -1 outside of delegates."""


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep upstream's warnings away from the terminal: what they mean for a user is in our own words."""
    logger = logging.getLogger("executorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def find(executions: Sequence[Execution], record: Path, program: Path | None) -> dict[tuple[int, str], Origin]:
    """The origin of each operator, by instruction and by name: the delegate's own name, the operator's, or the call's.

    Args:
        program: the ``.pte``, which has the delegates' graphs; without it their operators have the call's origin.

    Raises:
        ProgramError: the ETRecord is damaged, or of another program.
    """
    with silent():
        etrecord = load(record)
        check(executions, etrecord, record)
        graphs = read(program) if program is not None else {}
        nodes, handles = by_handle(edge_module(etrecord)), handles_of_instructions(etrecord)
    names: dict[int, dict[str, bool]] = {}  # by instruction: each event's name, and whether it is the delegate's own
    for event in (event for execution in executions for event in execution.events):
        names.setdefault(event.instruction, {})[event.name.removeprefix(NATIVE)] = event.delegated
    found = {}
    for number, given in names.items():
        matches = match([name for name, delegated in given.items() if delegated], graphs.get(number, ()))
        for name in given:
            matched = matches.get(name)
            own = (matched.handle,) if matched else handles.get(number, ())
            if not own:
                continue
            origin = _origin(own, [node for handle in own for node in nodes.get(handle, ())], name)
            found[number, name] = replace(origin, sure=matched.sure, node=matched.index) if matched else origin
    return found


def edge_module(etrecord: Any) -> Any:
    """The program before it was lowered, as a module."""
    edge = etrecord.edge_dialect_program
    return (edge["forward"] if isinstance(edge, dict) else edge).module()


def handles_of(node: Any) -> list[int]:
    """The debug handles of a node of PyTorch's graph."""
    return _several(node.meta.get("debug_handle", ()))


def _several(handles: Any) -> list[int]:
    """Debug handles, of which upstream writes one without a list."""
    return [handles] if isinstance(handles, int) else list(dict.fromkeys(handles or ()))


def handles_of_instructions(etrecord: Any) -> dict[int, tuple[int, ...]]:
    """The debug handles of what each instruction computes."""
    return {int(number): tuple(_several(each)) for number, each in etrecord._debug_handle_map["forward"].items()}


def by_handle(module: Any) -> dict[int, list[Any]]:
    """The operators of a graph by debug handle; a result that is one of several is no operator of its own."""
    found: dict[int, list[Any]] = {}
    for node in module.graph.nodes:
        if node.op == "call_function" and "getitem" not in str(node.target):
            for handle in handles_of(node):
                found.setdefault(handle, []).append(node)
    return found


def load(record: Path) -> Any:
    """Upstream's ``ETRecord``.

    Raises:
        ProgramError: it cannot be read.
    """
    from executorch.devtools.etrecord import parse_etrecord

    try:
        return parse_etrecord(str(record))
    except Exception as error:  # a zip file, pickles and JSON in it: whatever is damaged
        raise ProgramError(
            f"{shown(record)} is damaged, or not an ETRecord.", one_line(str(error)), _EXPORT_AGAIN
        ) from error


def check(executions: Sequence[Execution], etrecord: Any, record: Path) -> None:
    """Compare what ran with what the ETRecord knows.

    Raises:
        ProgramError: the ETRecord is of another program.
    """
    known = {int(number) for number in (etrecord._debug_handle_map or {}).get("forward", {})}
    delegates = {int(number) for number in (etrecord._delegate_map or {}).get("forward", {})}
    ran = {(one.instruction, one.name) for run in executions for one in run.events if one.name in (DELEGATE, OPERATOR)}
    wrong = [
        f"instruction {number} {'calls a delegate' if name == DELEGATE else 'is an operator'} in the run alone"
        for number, name in sorted(ran)
        if number not in known or (name == DELEGATE) != (number in delegates)
    ]
    if wrong:
        raise ProgramError(f"{shown(record)} is the ETRecord of another program.", "; ".join(wrong[:3]), _EXPORT_AGAIN)


def _origin(handles: Sequence[int], nodes: Sequence[Any], name: str = "") -> Origin:
    """The origin of nodes of an exported graph; ``name``: of the operator that ran."""
    computing = nodes
    if not name.startswith(("Convert", "Unary Elementwise")):
        # A quantized layer shares its debug handle with the nodes that round its output.
        computing = [node for node in nodes if not _word(node).startswith("quantized_decomposed")] or nodes
    operators = tuple(dict.fromkeys(map(_word, computing)))
    kernel = name.partition(".")[0]
    # Of many that share a handle, the one whose kernel ran, if it is among them.
    return Origin(
        tuple(handles),
        tuple(each for each in operators if each.split(".")[1:2] == [kernel]) or operators,
        _modules([node.meta.get("nn_module_stack") for node in computing]),
        _source([node.meta.get("stack_trace") for node in computing]),
    )


def origin_of(node: Any, handle: int) -> Origin:
    """The origin of one node."""
    return _origin((handle,), (node,), "Convert")


def _word(node: Any) -> str:
    """``aten.linear.default``."""
    return str(getattr(node.target, "__name__", node.target))


def _modules(hierarchies: Iterable[dict[str, Any] | None]) -> str:
    found: dict[str, None] = {}
    for hierarchy in hierarchies:
        if hierarchy:
            path, kind = list(hierarchy.values())[-1]
            kind = str(getattr(kind, "__name__", kind)).rpartition(".")[2]
            found[f"{path} ({kind})" if path else kind] = None
    return ", ".join(found)


def _source(traces: Iterable[str | None]) -> str:
    """The last frame that is the user's own, else the last one."""
    for trace in traces:
        frames = _FRAME.findall(trace or "")
        for file, line in reversed([frame for frame in frames if not _installed(frame[0])] or frames):
            return f"{_short(file)}:{line}"
    return ""


def _installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file


def _short(file: str) -> str:
    if _installed(file):
        return file.rpartition("-packages/")[2]
    with contextlib.suppress(ValueError):
        return Path(file).relative_to(ROOT).as_posix()
    return shown(file)
