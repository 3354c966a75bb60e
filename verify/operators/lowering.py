"""A program that upstream lowered, what it is given, and what PyTorch gives for that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Run:
    """One start of the runner."""

    inputs: Tensors
    results: Tensors
    """What PyTorch gives; none: the runner must refuse the inputs."""
    executions: int = 1
    """In a row; the last one's outputs are compared."""
    method: str = "forward"
    first: tuple[tuple[str, Tensors], ...] = ()
    """Methods that run once before, in the same process."""


@dataclass(frozen=True)
class Program:
    """An exported program and what is to be seen of it."""

    buffer: bytes
    operators: tuple[str, ...]
    runs: tuple[Run, ...]
    data: dict[str, bytes] = field(default_factory=dict)
    """Files of weights, by name without ``.ptd``."""


def flat(value: Any) -> Tensors:
    """Tensors of all that is in it, numbers too."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return tuple(leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves)


def lower(
    exported: Any,
    runs: tuple[Run, ...],
    *,
    delegate: bool = False,
    config: Any = None,
    options: dict[str, bool] | None = None,
) -> Program:
    """What upstream makes of an exported module; ``options``: of the partitioner."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(
        exported,
        partitioner=[XnnpackPartitioner(**(options or {}))] if delegate else [],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    ).to_executorch(config)
    names = sorted(
        f"{item.name}.{item.overload}" if item.overload else item.name
        for plan in lowered.executorch_program.execution_plan
        for item in plan.operators
    )
    files = {name: bytes(blob) for name, blob in getattr(lowered, "_tensor_data", {}).items()}
    return Program(bytes(lowered.buffer), tuple(names), runs, files)
