"""Reading exported graphs: operators' names, the origin of weights, delegates, sizes of inputs. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.formats.program import Dimension

# The position of the weight among an operator's arguments.
_WEIGHT_ARGUMENT = {
    **dict.fromkeys(("aten::linear", "aten::matmul", "aten::mm", "aten::bmm", "aten::convolution"), 1),
    **{f"aten::{kind}{axes}d": 1 for kind in ("conv", "conv_transpose") for axes in (1, 2, 3)},
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), 2),
}

# Operators that move numbers without changing them.
_SHAPES = frozenset(
    [
        *("_clone_dim_order", "alias", "clone", "contiguous", "detach", "expand", "flatten", "numpy_T", "permute"),
        *("reshape", "select", "slice", "squeeze", "t", "transpose", "unflatten", "unsqueeze", "view"),
    ]
)


def target_name(node: Any) -> str:
    """``aten::mul.Scalar``; without ``.default``; Python's own functions as ``operator.getitem``."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', node.target)}"
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def base_name(name: str) -> str:
    """``aten::mul`` of ``aten::mul.Scalar_out``."""
    return name.partition(".")[0] if "::" in name else name


def exported_name(node: Any) -> str:
    """The name of the exported program's operator that ``node`` was made from."""
    source = (node.meta.get("from_node") or [None])[-1]
    while source is not None and source.from_node:
        source = source.from_node[-1]
    return str(source.name if source is not None else node.name)


def living(program: Any) -> set[Any]:
    """The nodes of an exported program that an output or an effect needs; the exporter drops the others."""
    found: set[Any] = set()
    for node in reversed(program.graph.nodes):
        if node.is_impure() or not found.isdisjoint(node.users):
            found.add(node)
    return found


def is_delegate_call(node: Any) -> bool:
    """Whether the node calls a delegate."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "executorch_call_delegate"


def lowered_module(graph_module: Any, node: Any) -> Any:
    """The delegate that a delegate call calls: has ``backend_id`` and ``original_module``."""
    return getattr(graph_module, node.args[0].target)


def is_operator(node: Any) -> bool:
    """Whether the node computes: it is not a placeholder, delegate, tuple element or allocation."""
    return (
        node.op == "call_function"
        and not is_delegate_call(node)
        and target_name(node) != "_operator.getitem"
        and not target_name(node).startswith("executorch.exir.memory.")
    )


def is_dequantize(node: Any) -> bool:
    """Whether the node turns integers into floats."""
    return node.op == "call_function" and "::dequantize" in target_name(node)


def is_quantize(node: Any) -> bool:
    """Whether the node turns floats into integers."""
    return node.op == "call_function" and "::quantize" in target_name(node)


def moves_only(node: Any) -> bool:
    """Whether the node only moves or reshapes its first argument."""
    if node.op != "call_function":
        return False
    operator = base_name(target_name(node)).partition("::")[2]
    return operator in _SHAPES or operator.removesuffix("_copy") in _SHAPES


def source(node: Any) -> Any:
    """The node that computes ``node``'s numbers, found through nodes that only move them."""
    while isinstance(node, torch.fx.Node) and moves_only(node):
        node = node.args[0]
    return node


def constants(program: Any) -> dict[str, str]:
    """Placeholder name -> parameter's or buffer's name, for what is constant in an exported program."""
    given = program.graph_signature
    return {**given.inputs_to_parameters, **given.inputs_to_buffers, **given.inputs_to_lifted_tensor_constants}


def module_path(node: Any) -> str:
    """The module in which the user's code made this node: ``features.0.0``; empty for the model itself."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]) if stack else ""


@dataclass(frozen=True)
class Layer:
    """A multiplication by a constant weight."""

    node: Any
    path: str
    kind: str
    """``linear``, ``convolution``, ..."""
    weight: str
    """The weight's name in the program."""
    shape: tuple[int, ...]
    """The weight's."""
    weight_quantized: bool
    activation_quantized: bool
    delegated: bool


def weight_argument(node: Any) -> int | None:
    """The position of the weight among the arguments of a layer; ``None`` for other nodes."""
    position = _WEIGHT_ARGUMENT.get(base_name(target_name(node))) if node.op == "call_function" else None
    return None if position is None or len(node.args) <= position else position


def _layer(node: Any, constant: dict[str, str], delegated: bool) -> Layer | None:
    """The layer that ``node`` is, if it multiplies by a constant."""
    position = weight_argument(node)
    if position is None:
        return None
    weight = source(node.args[position])
    value = getattr(weight, "meta", {}).get("val")
    quantized = False
    if isinstance(weight, torch.fx.Node) and is_dequantize(weight):
        weight = source(weight.args[0])
        stored = getattr(weight, "meta", {}).get("val")
        quantized = stored is not None and not stored.dtype.is_floating_point
    if not isinstance(weight, torch.fx.Node) or weight.name not in constant:
        return None
    activation = source(node.args[position - 1])
    return Layer(
        node=node,
        path=module_path(node),
        kind=base_name(target_name(node)).partition("::")[2],
        weight=constant[weight.name],
        shape=tuple(int(size) for size in value.shape) if value is not None else (),
        weight_quantized=quantized,
        activation_quantized=isinstance(activation, torch.fx.Node) and is_dequantize(activation),
        delegated=delegated,
    )


def layers(program: Any, delegated: bool = False) -> Iterator[Layer]:
    """The layers of an exported program in order, those inside its delegates too.

    A weight that is dequantized outside a delegate is an input to it, not a constant of it: that layer is not found,
    because the delegate computes it in float.
    """
    constant = constants(program)
    for node in program.graph.nodes:
        if is_delegate_call(node):
            yield from layers(lowered_module(program.graph_module, node).original_module, True)
        elif (layer := _layer(node, constant, delegated)) is not None:
            yield layer


EXECUTIONS = 11
"""How many executions the reference has: what a deploy to a real device runs (ten, after one of warm-up)."""
_MOST = 64 << 20
"""Bytes of the outputs of all of them; of larger ones the first two and the last are kept. Also of the inputs of the
greatest size that is checked."""


@contextlib.contextmanager
def unchanged(module: Any) -> Iterator[Mapping[str, Any]]:
    """Give the buffers of ``module`` the values back that they have now, which are yielded."""
    before = {name: one.detach().clone() for name, one in module.named_buffers()}
    try:
        yield before
    finally:
        with torch.no_grad():
            for name, one in module.named_buffers():
                if name in before and before[name].shape == one.shape:
                    one.copy_(before[name])


def changed(module: Any, before: Mapping[str, Any]) -> bool:
    """Whether a buffer has another value than in ``before``."""
    return any(name in before and not torch.equal(before[name], one.detach()) for name, one in module.named_buffers())


def kept(size: int) -> tuple[int, ...]:
    """The executions that the reference keeps outputs of; ``size``: bytes of one execution's."""
    return tuple(range(1, EXECUTIONS + 1)) if EXECUTIONS * size <= _MOST else (1, 2, EXECUTIONS)


def eager(module: Any, inputs: Sequence[Any]) -> dict[int, list[Any]]:
    """Outputs of the model in PyTorch, by the number of the execution; the model forgets them again.

    Only the first execution of a model without state is there; else that and the last.

    Raises:
        ExportError: it does not run on its example inputs.
    """
    from models.loading import reference

    with unchanged(module) as before:
        found = {1: reference.eager(module, inputs)}
        if changed(module, before):
            for _ in range(2, EXECUTIONS + 1):
                found[EXECUTIONS] = reference.eager(module, inputs)
    return found


def mutated(program: Any) -> dict[str, str]:
    """Placeholder -> name of each buffer that the program (in edge dialect) changes."""
    signature = program.graph_signature
    names = set(signature.buffers_to_mutate.values())
    return {node: name for node, name in signature.inputs_to_buffers.items() if name in names}


def initialized(program: Any) -> list[str]:
    """Placeholders of the changing buffers that do not begin with zeros: the program must bring their values along."""
    return [
        node
        for node, name in mutated(program).items()
        if name in program.state_dict and bool(program.state_dict[name].detach().count_nonzero())
    ]


def input_sizes(program: Any) -> tuple[tuple[Dimension, ...], ...]:
    """The dimensions of each input of a ``torch.export.ExportedProgram``, in the order in which it takes them."""
    from torch.export.graph_signature import InputKind

    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    return tuple(
        tuple(_dimension(size, program.range_constraints) for size in getattr(values[name], "shape", ()))
        for name in names
    )


def _dimension(size: Any, ranges: Any) -> Dimension:
    """One dimension: a number, or what torch.export has for a size that may change."""
    from torch.utils._sympy.value_ranges import bound_sympy

    if isinstance(size, int):
        return Dimension(least=size, most=size)
    expression = size.node.expr
    bounds = bound_sympy(expression, ranges)
    # torch's own infinity is not a number of sympy.
    most = int(bounds.upper) if bounds.upper.is_Integer else None
    least = max(0, int(bounds.lower)) if bounds.lower.is_Integer else 0
    symbol, times, plus = _linear(expression)
    return Dimension(least=least, most=most, symbol=symbol, times=times, plus=plus)


def _linear(expression: Any) -> tuple[str, int, int]:
    """``2*s0 + 1`` as its symbol and two numbers; no symbol where it is anything else."""
    symbols = list(expression.free_symbols)
    if len(symbols) == 1:
        times = expression.diff(symbols[0])
        plus = (expression - times * symbols[0]).expand()
        if times.is_Integer and plus.is_Integer and times > 0:
            return str(symbols[0]), int(times), int(plus)
    return "", 1, 0


def other_sizes(dimensions: Sequence[Sequence[Dimension]], inputs: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    """Inputs of the least and of the greatest sizes, made of the example's by leaving out and repeating elements.

    Sizes of 0 are not taken. A name is missing if its sizes are the example's, unbounded, too large, or not known
    because one follows from several others.
    """
    found = {}
    for name, least in (("least", True), ("greatest", False)):
        shapes = _shapes(dimensions, least)
        if shapes is None or shapes == [tuple(one.shape) for one in inputs]:
            continue
        size = sum(torch.Size(shape).numel() * one.element_size() for shape, one in zip(shapes, inputs, strict=True))
        if size <= _MOST:
            found[name] = tuple(_resized(one, shape) for one, shape in zip(inputs, shapes, strict=True))
    return found


def _shapes(dimensions: Sequence[Sequence[Dimension]], least: bool) -> list[tuple[int, ...]] | None:
    numbers: dict[str, int] = {}
    for one in (one for each in dimensions for one in each if one.symbol):
        low = -(-(max(1, one.least) - one.plus) // one.times)
        if not least and one.most is None:
            return None
        number = low if least else (int(one.most or 0) - one.plus) // one.times
        known = numbers.setdefault(one.symbol, number)
        numbers[one.symbol] = max(known, number) if least else min(known, number)
    if any(not one.symbol and one.least != one.most for each in dimensions for one in each):
        return None
    return [
        tuple(one.times * numbers[one.symbol] + one.plus if one.symbol else one.least for one in each)
        for each in dimensions
    ]


def _resized(tensor: Any, shape: tuple[int, ...]) -> Any:
    from models.loading import reference

    form = torch.channels_last if reference.images(tensor) else torch.contiguous_format
    for axis, size in enumerate(shape):
        if tensor.shape[axis] not in (0, size):
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor.contiguous(memory_format=form)
