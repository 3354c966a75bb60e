"""The sizes that inputs of an exported program may have: torch.export's ranges and their dependencies."""

from __future__ import annotations

from typing import Any

from core.program import Dimension


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
