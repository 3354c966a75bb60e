"""A small module made of a function, the program that upstream makes of it, and what PyTorch gives for that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

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
    files = {name: bytes(blob) for name, blob in getattr(lowered, "_tensor_data", {}).items()}
    return Program(bytes(lowered.buffer), operators(lowered), runs, files, meant)


def operators(lowered: Any) -> tuple[str, ...]:
    """The operators in a program, by the names of their kernels."""
    plans = lowered.executorch_program.execution_plan
    named = ((item.name, item.overload) for plan in plans for item in plan.operators)
    return tuple(sorted(f"{name}.{overload}" if overload else name for name, overload in named))


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


def input_written(module: Any, *given: Any, delegate: bool = False) -> Program:
    """The program of a module that writes to its first input, which comes first among the outputs then."""
    exported = torch.export.export(module, fresh(given), strict=False)
    after = fresh(given)
    results = leaves((after[0], module(*after)))
    return lower(exported, (Run(given, results), Run(given, results, 3)), delegate=delegate)


def settings(**options: Any) -> Any:
    """Upstream's settings of the last step, and those of its planning of memory.

    Args:
        options: ``inputs``, ``outputs``: whether memory is planned for them; ``state``: names of buffers whose first
            value is kept; all else as `executorch.exir.ExecutorchBackendConfig` has it.
    """
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    planning = {"alloc_graph_input": options.pop("inputs", True), "alloc_graph_output": options.pop("outputs", True)}
    own = ("memory_planning_algo", "alignment", "share_mutable_buffers")
    planning |= {name: options.pop(name) for name in own if name in options}
    names = options.pop("state", [])
    passes = [InitializedMutableBufferPass(names)] if names else []
    return ExecutorchBackendConfig(passes=passes, memory_planning_pass=MemoryPlanningPass(**planning), **options)
