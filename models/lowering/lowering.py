"""From an exported program to a .pte: partition, delegate, emit; with the reasons for operators outside delegates.

Imports torch and the exporter.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from core.errors import ExportError, SlipwayError
from core.formats.program import BY_ONNX, Operator
from models.lowering import causes, graphs, progress
from models.lowering.attention import open_unmasked
from models.lowering.graphs import Layer, base_name, is_delegate_call, is_operator, layers, target_name
from models.request.partitioners import kind_of
from models.zoo.schemes import Scheme

_RELU = ("aten::relu", "aten::relu_")


def _name(layer: Layer) -> str:
    """``features.0 (linear 128x64)``; a layer outside any named module is named by its weight."""
    shape = "x".join(str(size) for size in layer.shape)
    return f"{layer.path or layer.weight} ({layer.kind} {shape})"


def _followed_by_relu(layer: Layer) -> bool:
    users = list(layer.node.users)
    return len(users) == 1 and users[0].op == "call_function" and base_name(target_name(users[0])) in _RELU


def _groups(layer: Layer) -> int:
    """A convolution's groups, from whichever form of the operator it is."""
    names = (one.name for one in layer.node.target._schema.arguments)  # the schema has their positions
    given = {**dict(zip(names, layer.node.args, strict=False)), **layer.node.kwargs}
    return int(given.get("groups", 1))


def _convolution_left(layer: Layer, scheme: Scheme) -> str:
    """Why dynamic quantization skips this convolution; empty if no rule matches."""
    rules = (
        (scheme.group > 0, "XNNPACK has no convolution with int4 blockwise weights"),
        (len(layer.shape) != 4, "dynamic quantization takes 2D convolutions only"),
        (_groups(layer) > 1, "dynamic quantization takes no grouped or depthwise convolutions"),
        (_followed_by_relu(layer), "the quantizer skips a dynamically quantized convolution that a ReLU follows"),
    )
    return next((why for holds, why in rules if holds), "")


def _never_quantized(layer: Layer, scheme: Scheme) -> str:
    """Why the quantizer skipped this layer, as far as its rules are known."""
    unknown = "the quantizer has no pattern for it"
    if layer.kind.startswith("conv"):
        return (_convolution_left(layer, scheme) if scheme.dynamic else "") or unknown
    if layer.kind == "linear" and scheme.group and layer.shape and layer.shape[-1] % scheme.group:
        return f"its {layer.shape[-1]} input features are not a multiple of the block of {scheme.group}"
    if scheme.dynamic:
        return "torchao quantizes torch.nn.Linear modules only, and this product is computed otherwise"
    return unknown


def _judge(expected: Layer, got: Layer | None, scheme: Scheme, lowered: Lowered) -> str:
    """Why the program computes this layer in floating point; empty if it does not."""
    if not expected.weight_quantized:
        return _never_quantized(expected, scheme)
    if got is None or not got.weight_quantized:
        return "quantized, but the delegate takes its weight dequantized and computes in float"
    if not got.delegated:
        refused = lowered.refused.get(got.node.name, "no reason was given")
        return f"quantized, but outside every delegate, where it runs in float: {refused}"
    return "" if got.activation_quantized else "its weight is quantized, its input is not"


def skipped(program: Any, lowered: Lowered, scheme: Scheme, chosen: Sequence[str] = ()) -> tuple[tuple[str, ...], bool]:
    """Layers of the quantized ``program`` that the lowered one computes in floating point, each with the cause;
    and whether the scheme quantizes weights but none of this model's.

    Args:
        program: the exported program after quantization, before lowering.
        chosen: ``PATTERN:KIND`` of the user's; a layer that is to be float is not missing.

    Every product with a constant weight counts: a scheme that quantizes weights is meant for all of them.
    """
    if not scheme.weight_bits:
        return (), False
    left: dict[str, list[Layer]] = defaultdict(list)
    for layer in lowered.layers:
        left[layer.path].append(layer)
    missing = []
    alive = graphs.living(program)
    expected_layers = [one for one in layers(program) if one.node in alive]
    for expected in expected_layers:
        same = left[expected.path]
        # A module that computes several layers gives them in the same order before and after lowering.
        got = next((one for one in same if one.weight == expected.weight), same[0] if same else None)
        if got is not None:
            same.remove(got)
        if kind_of(chosen, expected.path) == "float":
            continue
        cause = _judge(expected, got, scheme, lowered)
        if cause:
            missing.append(f"{_name(expected)}: {cause}")
    return tuple(missing), len(missing) == len(expected_layers)


_ANY_HINT = "--partitioners none (with --scheme fp32 or qs8), to see whether the delegate is to blame"
_NO_DELEGATE_HINT = f"{BY_ONNX}: torch's export to ONNX takes another way"
_LOGGERS = ("executorch.backends", "executorch.exir.backend")


class Reasons(logging.Handler):
    """Why partitioners refused nodes, from the `WhyNoPartition` records that they log."""

    def __init__(self, partitioners: Sequence[Any]) -> None:
        super().__init__(logging.DEBUG)
        self.partitioners = partitioners
        self.running = ""
        """The class of the partitioner that is at work; empty: none is."""
        self.asked = False
        """Whether it is asked which operators it takes whole: those that it refuses are decomposed."""
        self.given: dict[tuple[str, str], str] = {}
        """By the partitioner's class and the node's name."""
        self.whole: dict[tuple[str, str], str] = {}
        """The same for operators that they refused to take whole, by their names in the exported program."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a reason."""
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", "")
        if not self.running or node is None or not reason:
            return
        if self.asked:
            self.whole[self.running, graphs.exported_name(node)] = f"{reason} ({base_name(target_name(node))})"
        else:
            self.given[self.running, node.name] = str(reason)

    def of(self, node: Any) -> str:
        """Why ``node`` is outside every delegate, one clause for each partitioner."""
        if not self.partitioners:
            return "no partitioner was requested"
        return "; ".join(f"{type(one).__name__}: {self._one(one, node)}" for one in self.partitioners)

    def _one(self, partitioner: Any, node: Any) -> str:
        kind = type(partitioner).__name__
        said = self.given.get((kind, node.name))
        if said is not None:
            return f"{said} ({_types(node)})" if "dtype" in said.lower() else said
        rules = getattr(partitioner, "target_partitioner_configs", None)
        if rules is None:
            return "did not take it"
        from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name

        if format_target_name(getattr(node.target, "__name__", "")) not in rules:
            return self.whole.get((kind, graphs.exported_name(node))) or f"has no rule for {target_name(node)}"
        return "has a rule for it, did not take it here and gave no reason"


def _types(node: Any) -> str:
    """``inputs int64, bool; output float32``."""

    def dtype(value: Any) -> str:
        return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")

    inputs = ", ".join(dtype(one.meta.get("val")) for one in node.all_input_nodes)
    return f"inputs {inputs or 'none'}; output {dtype(node.meta.get('val'))}"


def _announce(partitioner: Any, reasons: Reasons) -> None:
    """Let ``reasons`` know while ``partitioner`` makes its final choice, or says what it takes whole before that."""
    choose, ask = partitioner.partition, partitioner.ops_to_not_decompose

    def partition(program: Any) -> Any:
        reasons.running = type(partitioner).__name__
        progress.at(f"{reasons.running} chooses its operators")
        try:
            chosen = choose(program)
            count = len(chosen.partition_tags)
            progress.at(f"{reasons.running} compiles {count} delegate{'' if count == 1 else 's'}")
            return chosen
        finally:
            reasons.running = ""

    def ops_to_not_decompose(program: Any) -> Any:
        operators, takes = ask(program)

        def asked(node: Any) -> bool:
            if node.graph is not program.graph:  # a branch's or loop's, where no partitioner looks afterwards
                return False
            reasons.running, reasons.asked = type(partitioner).__name__, True
            try:
                return bool(takes(node))
            finally:
                reasons.running, reasons.asked = "", False

        return operators, takes and asked

    partitioner.partition = partition
    partitioner.ops_to_not_decompose = ops_to_not_decompose


@contextlib.contextmanager
def _listening(partitioners: Sequence[Any]) -> Iterator[Reasons]:
    """Collect reasons while the block runs."""
    reasons = Reasons(partitioners)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(reasons)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    for partitioner in partitioners:
        _announce(partitioner, reasons)
    try:
        yield reasons
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(reasons)
            logger.setLevel(level)
            logger.propagate = propagate


def edge_operators(graph_module: Any) -> Iterator[Any]:
    """The operator nodes outside delegates, those in the branches of control flow too."""
    for node in graph_module.graph.nodes:
        if is_operator(node):
            yield node
        elif node.op == "get_attr":
            branch = getattr(graph_module, str(node.target), None)
            if hasattr(branch, "graph") and not hasattr(branch, "backend_id"):
                yield from edge_operators(branch)


@dataclass(frozen=True)
class Lowered:
    """The result of lowering. Emitting rewrites the graph, so these facts were read before."""

    manager: Any
    """``ExecutorchProgramManager``: saves the .pte and the ETRecord."""
    layers: tuple[Layer, ...]
    """Products with constant weights, inside the delegates and outside."""
    inside: Counter[str]
    """Operators in the delegates."""
    outside: dict[str, list[str]]
    """Operators outside them, without overload -> the different reasons why, in order."""
    refused: dict[str, str]
    """Node outside -> the reason why."""
    state: tuple[str, ...] = ()
    """Buffers that an execution changes."""


def _read(program: Any, name: str, reasons: Reasons, state_of_all: Collection[str]) -> Callable[..., Lowered]:
    """The facts about one method; still without the manager.

    Args:
        program: in edge dialect.
        state_of_all: buffers that any of the methods changes.

    Raises:
        ExportError: a delegate took one of them for a constant.
    """
    calls = filter(is_delegate_call, program.graph.nodes)
    delegates = [graphs.lowered_module(program.graph_module, node).original_module for node in calls]
    if baked := sorted(name for one in delegates for name in one.graph_signature.buffers if name in state_of_all):
        raise ExportError(
            f"Method {name} only reads {', '.join(baked)}, which another method changes.",
            "a delegate took it for a constant, so the program would not see the change",
            "--partitioners none, or let the method change the buffer, too",
            baked,
        )
    refused = {node: reasons.of(node) for node in edge_operators(program.graph_module)}
    outside: dict[str, dict[str, None]] = defaultdict(dict)
    for node, why in refused.items():
        outside[base_name(target_name(node))][why] = None
    return partial(
        Lowered,
        layers=tuple(layers(program)),
        inside=Counter(target_name(node) for one in delegates for node in one.graph.nodes if is_operator(node)),
        outside={operator: list(each) for operator, each in outside.items()},
        refused={node.name: why for node, why in refused.items()},
        state=tuple(sorted(graphs.mutated(program).values())),
    )


def lower_all(programs: Mapping[str, Any], partitioners: Sequence[Any]) -> dict[str, Lowered]:
    """Delegate what the partitioners take, in their order, and emit: methods by their names.

    They share weights, and buffers that an execution changes.

    What a partitioner takes and its lowering refuses is left outside of the delegates (`models.lowering.refusals`). The
    programs stay as they are.

    Raises:
        ExportError: the exporter fails, or a method cannot see what another one changes.
    """
    importlib.import_module("executorch.kernels.quantized")  # registers quantized_decomposed's out variants
    from executorch.backends.xnnpack.utils.configs import (
        get_transform_passes,
        get_xnnpack_edge_compile_config,
        get_xnnpack_executorch_backend_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    from models.lowering.pieces import cut_as_taken
    from models.lowering.refusals import Refusals

    try:
        with torch.no_grad(), _listening(partitioners) as reasons:

            def run() -> Any:
                reasons.given.clear()
                reasons.whole.clear()
                every = copy.deepcopy(dict(programs))  # lowering rewrites the graphs
                for one in every.values():
                    open_unmasked(one, partitioners)
                return to_edge_transform_and_lower(
                    every if len(every) > 1 else next(iter(every.values())),
                    transform_passes=get_transform_passes([partial(cut_as_taken, partitioners)]),
                    partitioner=list(partitioners),
                    compile_config=get_xnnpack_edge_compile_config(),
                    generate_etrecord=True,
                )

            edge = Refusals().lower(run, partitioners)
        progress.at("writing the program")
        names = list(programs)
        every = {name: edge.exported_program(name if len(names) > 1 else "forward") for name in names}
        changing = {buffer for one in every.values() for buffer in graphs.mutated(one).values()}
        read = {name: _read(one, name, reasons, changing) for name, one in every.items()}
        begin = sorted({node for one in every.values() for node in graphs.initialized(one)})
        config = get_xnnpack_executorch_backend_config([InitializedMutableBufferPass(begin)] if begin else [])
        if len(names) > 1 and changing:
            config.memory_planning_pass = MemoryPlanningPass(share_mutable_buffers=True)
        with torch.no_grad():
            manager = edge.to_executorch(config=config)
    except SlipwayError:
        raise
    except Exception as error:
        last = list(programs.values())[-1]
        cause, hint = causes.explained(error, program=last, otherwise=_ANY_HINT if partitioners else _NO_DELEGATE_HINT)
        raise ExportError("Lowering the exported model failed.", cause, hint) from error
    return {name: each(manager=manager) for name, each in read.items()}


@dataclass(frozen=True)
class Delegation:
    """The operators of a program, by delegate or outside: named as in `core.formats.program.Program`."""

    delegates: int
    """Delegate calls."""
    backends: tuple[str, ...]
    delegated: tuple[Operator, ...]
    undelegated: tuple[Operator, ...]

    def needed(self) -> list[str]:
        """The backends and kernels that a runtime must have for it."""
        return [*self.backends, *(one.name for one in self.undelegated)]


def describe(lowered: Lowered, method: str = "forward") -> Delegation:
    """Count the calls of the emitted plan, with the reason for each operator outside a delegate.

    Names outside are those by which a runtime registers kernels: ``aten::embedding.out``.
    """
    plan = next(one for one in lowered.manager.executorch_program.execution_plan if one.name == method)
    calls = [instruction.instr_args for chain in plan.chains for instruction in chain.instructions]
    kernels = Counter(one.op_index for one in calls if type(one).__name__ == "KernelCall")
    outside = []
    for index, operator in enumerate(plan.operators):
        name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        why = " | ".join(lowered.outside.get(base_name(name), ["added by ExecuTorch when it emitted the program"]))
        outside.append(Operator(name=name, count=kernels[index], why=why))
    return Delegation(
        delegates=sum(type(one).__name__ == "DelegateCall" for one in calls),
        backends=tuple(sorted({one.id for one in plan.delegates})),
        delegated=tuple(Operator(name=name, count=count) for name, count in sorted(lowered.inside.items())),
        undelegated=tuple(sorted(outside, key=lambda one: one.name)),
    )
