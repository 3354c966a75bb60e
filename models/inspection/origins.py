"""Where an operator of a run came from: its module, source line and PyTorch operators, by upstream's Inspector."""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import logging
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    return tuple(
        Node(str(node["xnode_union_type"]).removeprefix("XNN"), int(node.get("debug_handle", 0)))
        for node in graph.get("xnodes", ())
    )


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


def find(
    dump: Path, executions: Sequence[Execution], record: Path, program: Path | None, method: str = "forward"
) -> dict[tuple[int, str], Origin]:
    """The origin of each operator, by instruction and by name: the delegate's own name, the operator's, or the call's.

    Args:
        dump: the ETDump; ``executions`` are what is in it.
        program: the ``.pte``, which has the delegates' graphs; without it their operators have the call's origin.

    Raises:
        ProgramError: the ETRecord is damaged, or of another program.
    """
    with silent():
        etrecord = load(record)
        graphs = read(program, method) if program is not None else {}
        return _find(dump, executions, etrecord, graphs, record)


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
    ran: dict[int, str] = {}
    for execution in executions:
        for event in execution.events:
            if event.name in (DELEGATE, OPERATOR):
                ran[event.instruction] = event.name
    wrong = [
        f"instruction {number} {'calls a delegate' if name == DELEGATE else 'is an operator'} in the run"
        + (" and is unknown to the ETRecord" if number not in known else ", and not in the ETRecord")
        for number, name in sorted(ran.items())
        if number not in known or (name == DELEGATE) != (number in delegates)
    ]
    if wrong:
        raise ProgramError(f"{shown(record)} is the ETRecord of another program.", "; ".join(wrong[:3]), _EXPORT_AGAIN)


def _find(
    dump: Path,
    executions: Sequence[Execution],
    etrecord: Any,
    graphs: dict[int, tuple[Node, ...]],
    record: Path,
) -> dict[tuple[int, str], Origin]:
    from executorch.devtools import Inspector

    check(executions, etrecord, record)
    matches = correlate(executions, etrecord, graphs)
    found: dict[tuple[int, str], Origin] = {}
    for block in Inspector(etdump_path=str(dump), etrecord=etrecord).event_blocks:
        for event in block.events:
            handles = event.debug_handles
            if handles is None or event._instruction_id is None:
                continue
            name = event.name.removeprefix(NATIVE)
            handles = (handles,) if isinstance(handles, int) else tuple(dict.fromkeys(handles))
            matched = matches.get((event._instruction_id, name))
            nodes = _computing(event.stack_traces, name)
            found[event._instruction_id, name] = Origin(
                handles,
                _operators(event.op_types, name),
                _modules([event.module_hierarchy.get(node) for node in nodes]),
                _source([event.stack_traces[node] for node in nodes]),
                matched is None or matched.sure,
                -1 if matched is None else matched.index,
            )
    return found


def correlate(
    executions: Sequence[Execution], etrecord: Any, graphs: dict[int, tuple[Node, ...]]
) -> dict[tuple[int, str], Match]:
    """Fill in the ETRecord's maps of XNNPACK's delegates, which their own preprocessing leaves empty."""
    names: dict[int, dict[str, None]] = {}
    for execution in executions:
        for event in execution.events:
            if event.delegated:
                names.setdefault(event.instruction, {})[event.name] = None
    found: dict[tuple[int, str], Match] = {}
    for number, nodes in graphs.items():
        matches = match(list(names.get(number, ())), nodes)
        entry = (etrecord._delegate_map or {}).get("forward", {}).get(str(number))
        if entry is not None:
            entry["delegate_map"] = {name: (one.handle,) for name, one in matches.items()}
        found |= {(number, name): one for name, one in matches.items()}
    return found


def _is_rounding(word: str) -> bool:
    """Whether it is the name of a node or operator that only quantizes or dequantizes."""
    return word.startswith("quantized_decomposed")


def _computing(nodes: Iterable[str], name: str) -> list[str]:
    """The nodes that compute: a quantized layer shares its debug handle with the nodes that round its output."""
    every = list(nodes)
    if name.startswith(("Convert", "Unary Elementwise")):
        return every
    return [node for node in every if not _is_rounding(node)] or every


def _operators(types: Sequence[str], name: str) -> tuple[str, ...]:
    """Each once; of many that share a handle, the one whose kernel ran, if it is among them."""
    once = tuple(dict.fromkeys(_computing(map(str, types), name)))
    kernel = name.partition(".")[0]
    same = tuple(each for each in once if each.split(".")[1:2] == [kernel])
    return same or once


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
