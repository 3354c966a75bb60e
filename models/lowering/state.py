"""Models that remember: buffers that an execution changes, such as a recurrent state or a cache of keys and values.

Executions of such a program differ from one another, so its reference has the outputs of several. Imports torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

EXECUTIONS = 11
"""How many executions the reference has: what a deploy to a real device runs (ten, after one of warm-up)."""
_MOST = 64 << 20
"""Bytes of the outputs of all of them; of larger ones the first two and the last are kept."""


@contextlib.contextmanager
def unchanged(module: Any) -> Iterator[None]:
    """Give the buffers of ``module`` the values back that they have now."""
    before = {name: one.detach().clone() for name, one in module.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, one in module.named_buffers():
                if name in before and before[name].shape == one.shape:
                    one.copy_(before[name])


def changed(module: Any, before: Mapping[str, Any]) -> bool:
    """Whether a buffer has another value than in ``before``."""
    return any(name in before and not torch.equal(before[name], one.detach()) for name, one in module.named_buffers())


def kept(size: int) -> tuple[int, ...]:
    """The executions that the reference keeps outputs of.

    Args:
        size: bytes of one execution's outputs.
    """
    return tuple(range(1, EXECUTIONS + 1)) if EXECUTIONS * size <= _MOST else (1, 2, EXECUTIONS)


def eager(module: Any, inputs: Sequence[Any]) -> dict[int, list[Any]]:
    """Outputs of the model in PyTorch, by the number of the execution; the model forgets them again.

    Only the first execution of a model without state is there; else that and the last.

    Raises:
        ExportError: it does not run on its example inputs.
    """
    from models.loading import reference

    before = {name: one.detach().clone() for name, one in module.named_buffers()}
    with unchanged(module):
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
