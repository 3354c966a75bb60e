"""Every kernel's cases as programs: hypothesis draws them from a seed, and many go into one export."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from models.lowering import shortcuts
from verify.operators.draws import Call, Case, Draw

Maker = Callable[[Draw], Call]
FAMILIES = ("elementwise", "lines", "shapes", "images")
"""Modules of cases: ``verify/operators/<family>.py``."""


@dataclass(frozen=True)
class Batch:
    """One program of many operators."""

    program: bytes
    inputs: tuple[torch.Tensor, ...]
    cases: tuple[Case, ...]
    results: tuple[tuple[torch.Tensor, ...], ...]
    """ATen's, of each case."""
    operators: tuple[str, ...]
    """In the program, by the names of their kernels."""


def makers(family: str) -> dict[str, Maker]:
    """Kernel -> what draws a use of it."""
    found: dict[str, Maker] = importlib.import_module(f"verify.operators.{family}").MAKERS
    return found


def draw(family: str, number: int, examples: int = 1) -> list[Case]:
    """Each kernel of a family, ``examples`` times, from the seed ``number``."""
    drawn: list[list[Case]] = []

    # The first example that hypothesis tries is always the simplest one: it is left out.
    @seed(number)
    @settings(
        max_examples=examples + 1, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        drawn.append([Case(kernel, *make(data.draw)) for kernel, make in makers(family).items()])

    torch.manual_seed(number)
    collect()
    return [case for example in drawn[1 : examples + 1] for case in example]


def flat(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of an operator's result."""
    return (value,) if isinstance(value, torch.Tensor) else tuple(one for one in value if one is not None)


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The function's results."""
        return self.function(*inputs)


@shortcuts.in_torch()
def portable(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], *, preserve: bool = True
) -> tuple[bytes, tuple[str, ...]]:
    """A function's program without delegates, and the operators in it by the names of their kernels.

    Args:
        preserve: keep ATen's operators as they are called; or as the exporter decomposes them.
    """
    from executorch.exir import EdgeCompileConfig, to_edge

    exported = torch.export.export(Function(function), tuple(inputs), strict=False)
    called = {node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    kept = sorted((op for op in called if op.namespace == "aten"), key=str) if preserve else []
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False, preserve_ops=kept))
    program = edge.to_executorch()
    plan = program.executorch_program.execution_plan[0]
    names = sorted(f"{item.name}.{item.overload}" if item.overload else item.name for item in plan.operators)
    return bytes(program.buffer), tuple(names)


def export(cases: Sequence[Case]) -> Batch:
    """One program of all cases, one after the other; their results in one tuple."""

    def together(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: list[torch.Tensor] = []
        at = 0
        for case in cases:
            found += flat(case.function(*inputs[at : at + len(case.inputs)]))
            at += len(case.inputs)
        return tuple(found)

    inputs = tuple(one for case in cases for one in case.inputs)
    # An operator may write to what it is given.
    results = tuple(flat(case.function(*(one.clone() for one in case.inputs))) for case in cases)
    program, names = portable(together, inputs)
    return Batch(program, inputs, tuple(cases), results, names)
