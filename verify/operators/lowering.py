"""A program that upstream lowered, what it is given, and what PyTorch gives for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from models.reference import tolerances

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
class Meant:
    """What an exported program computes, as it was before lowering rewrote it."""

    kind: str = "float"
    """The arithmetic that has to be allowed most: ``float``, ``half``, ``static`` or ``dynamic`` 8 bits."""
    steps: tuple[float | None, ...] = ()
    """In which each output is quantized."""
    shallow: bool = False
    """Whether only inputs of the program are quantized dynamically."""

    @classmethod
    def of(cls, exported: Any) -> Meant:
        """What an exported program computes."""
        found = set()
        for node in exported.graph.nodes:
            value = node.meta.get("val")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(one, torch.Tensor) and one.dtype in (torch.float16, torch.bfloat16):
                    found.add("half")
            name = str(node.target)
            if "choose_qparams" in name or "per_token" in name:
                found.add("dynamic")
            elif "quantize_per_tensor" in name or "quantize_affine" in name:
                found.add("static")
        kind = next((one for one in ("dynamic", "static", "half") if one in found), "float")
        steps = tuple(tolerances.output_steps(exported)) if kind == "static" else ()
        return cls(kind, steps, kind == "dynamic" and tolerances.inputs_quantized_directly(exported))


@dataclass(frozen=True)
class Program:
    """An exported program and what is to be seen of it."""

    buffer: bytes
    operators: tuple[str, ...]
    runs: tuple[Run, ...]
    data: dict[str, bytes] = field(default_factory=dict)
    """Files of weights, by name without ``.ptd``."""
    meant: Mapping[str, Meant] = field(default_factory=dict)
    """By methods."""


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

    methods = exported if isinstance(exported, dict) else {"forward": exported}
    meant = {name: Meant.of(one) for name, one in methods.items()}
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
    return Program(bytes(lowered.buffer), tuple(names), runs, files, meant)
