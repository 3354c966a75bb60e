"""The operators that a program runs, inside its delegates and outside, read from the .pte. Imports torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from core.formats.program import Operator
from models.lowering.graphs import base_name
from models.lowering.lowering import Lowered


@dataclass(frozen=True)
class Delegation:
    """The operators of a program, by delegate or outside."""

    calls: int
    """Delegate calls."""
    backends: tuple[str, ...]
    inside: tuple[Operator, ...]
    outside: tuple[Operator, ...]


def describe(lowered: Lowered, method: str = "forward") -> Delegation:
    """Count the calls of the emitted plan, with the reason for each operator outside a delegate.

    Names outside are those by which a runtime registers kernels: ``aten::embedding.out``.
    """
    plan = next(one for one in lowered.manager.executorch_program.execution_plan if one.name == method)
    calls = 0
    kernels: Counter[int] = Counter()
    for chain in plan.chains:
        for instruction in chain.instructions:
            kind = type(instruction.instr_args).__name__
            if kind == "DelegateCall":
                calls += 1
            elif kind == "KernelCall":
                kernels[instruction.instr_args.op_index] += 1
    outside = []
    for index, operator in enumerate(plan.operators):
        name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        why = " | ".join(lowered.outside.get(base_name(name), ["added by ExecuTorch when it emitted the program"]))
        outside.append(Operator(name=name, count=kernels[index], why=why))
    return Delegation(
        calls=calls,
        backends=tuple(sorted({one.id for one in plan.delegates})),
        inside=tuple(Operator(name=name, count=count) for name, count in sorted(lowered.inside.items())),
        outside=tuple(sorted(outside, key=lambda one: one.name)),
    )
