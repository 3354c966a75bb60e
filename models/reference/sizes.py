"""The sizes that inputs of an exported program may have: torch.export's ranges and their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.formats.program import Dimension
from models.loading import reference

_MOST = 64 << 20
"""Bytes of the inputs of the greatest size that is checked."""


def of_inputs(program: Any) -> tuple[tuple[Dimension, ...], ...]:
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


def others(dimensions: Sequence[Sequence[Dimension]], inputs: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    """Inputs of the least and of the greatest sizes, made of the example's by leaving out and repeating elements.

    Sizes of 0 are not taken. A name is missing if its sizes are the example's, unbounded, too large, or not known
    because one follows from several others.
    """
    found = {}
    for name, least in (("least", True), ("greatest", False)):
        shapes = _shapes(dimensions, least)
        if shapes is None or shapes == [tuple(one.shape) for one in inputs]:
            continue
        if (
            sum(torch.Size(shape).numel() * one.element_size() for shape, one in zip(shapes, inputs, strict=True))
            > _MOST
        ):
            continue
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
    form = torch.channels_last if reference.images(tensor) else torch.contiguous_format
    for axis, size in enumerate(shape):
        if tensor.shape[axis] not in (0, size):
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor.contiguous(memory_format=form)
