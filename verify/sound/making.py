"""A small module made of a function, and the program that upstream makes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from verify.operators.lowering import Program, Run, lower

Function = Callable[..., Any]
"""Of the module, which has the layers, and its inputs."""


class Made(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A module made of a function, with layers and state."""

    def __init__(self, function: Function, layers: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        for name, value in layers.items():
            if isinstance(value, nn.Module):
                self.add_module(name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, *inputs: Any) -> Any:
        """What the function gives."""
        return self.function(self, *inputs)


def made(function: Function, **layers: Any) -> Made:
    """A module of a function; layers are modules, or tensors that it may write to."""
    return Made(function, layers).eval().requires_grad_(False)  # type: ignore[no-any-return]


def fresh(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs again: a program may write to them."""
    return tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in inputs)


def leaves(value: Any) -> tuple[Any, ...]:
    """All results in a row: tensors, and ``None``."""
    found, _ = torch.utils._pytree.tree_flatten(value)
    return tuple(one if one is None or isinstance(one, torch.Tensor) else torch.tensor(one) for one in found)


def runs(module: Any, given: Sequence[Sequence[Any]], executions: Sequence[int] = (1,)) -> tuple[Run, ...]:
    """Each of the inputs, executed so many times in a row from the beginning."""
    found = []
    for inputs in given:
        for times in executions:
            one, results = copy.deepcopy(module), None
            for _ in range(times):
                results = one(*fresh(inputs))
            found.append(Run(tuple(inputs), tuple(copy.deepcopy(leaves(results))), times))
    return tuple(found)


def sound(
    module: Any,
    *given: Sequence[Any],
    sizes: Any = None,
    delegate: bool = False,
    config: Any = None,
    executions: Sequence[int] = (1,),
    options: dict[str, Any] | None = None,
) -> Program:
    """The program of a module.

    Args:
        given: inputs; the first ones are the export's examples.
        sizes: its dynamic shapes.
        executions: in a row, for each of the inputs.
        options: of upstream's partitioner.
    """
    first = fresh(given[0])
    shapes = (sizes,) if sizes and isinstance(module, Made) else sizes  # which takes its inputs as one row
    exported = torch.export.export(copy.deepcopy(module), first, dynamic_shapes=shapes, strict=False)
    return lower(exported, runs(module, given, executions), delegate=delegate, config=config, options=options)


def settings(**options: Any) -> Any:
    """Upstream's settings of the last step, and those of its planning of memory.

    Args:
        options: ``inputs``, ``outputs``, ``buffers``: whether memory is planned for them; ``state``: names of buffers
            whose first value is kept; all else as `executorch.exir.ExecutorchBackendConfig` has it.
    """
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    planning = {
        "alloc_graph_input": options.pop("inputs", True),
        "alloc_graph_output": options.pop("outputs", True),
        "alloc_mutable_buffers": options.pop("buffers", True),
    }
    planning |= {name: options.pop(name) for name in ("memory_planning_algo", "alignment") if name in options}
    names = options.pop("state", [])
    passes = [InitializedMutableBufferPass(names)] if names else []
    return ExecutorchBackendConfig(passes=passes, memory_planning_pass=MemoryPlanningPass(**planning), **options)
