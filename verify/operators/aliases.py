"""Programs in which upstream's passes put several values in one place: views, state, results in their inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verify.operators.lowering import Program, Run, Tensors, flat, lower


class Heads(nn.Module):  # type: ignore[misc]
    """As many rows as there are, each cut into heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        """``[2, n, 16]``: views of an intermediate value, and of the input."""
        n, t, _ = x.shape
        return self.layer(x).view(n, t, 4, 4).cumsum(1).view(n, t, 16), x.view(n * t, 2, 8).sin()


def views(*, planned: bool) -> Program:
    """At one row, some, and as many as there may be; ``planned``: inputs and outputs have memory of the program's."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    module = Heads().requires_grad_(False)
    rows = torch.export.Dim("n", min=1, max=32)
    exported = torch.export.export(module, (torch.randn(2, 6, 16),), dynamic_shapes=({1: rows},), strict=False)
    runs = []
    for count in (1, 7, 32):
        x = torch.randn(2, count, 16)
        runs.append(Run((x,), flat(module(x))))
    planning = MemoryPlanningPass(alloc_graph_input=planned, alloc_graph_output=planned)
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    return lower(exported, tuple(runs), delegate=planned, config=config)


class Cache(nn.Module):  # type: ignore[misc]
    """Keys of up to eight tokens: written in place, by way of views, and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 2, 2))
        self.register_buffer("rows", torch.zeros(4, 2))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, position: Any, x: Any) -> Any:
        """``[n]`` places, ``[n, 2, 2]``."""
        self.keys[position] = x
        self.rows.view(-1).index_put_((position,), x.sum((1, 2)))
        self.total[:2] = x.sum((0, 1))
        return self.keys + 1, self.rows * 1, self.total * 1


def cache(*, in_place: bool) -> Program:
    """Executions in a row; ``in_place``: by upstream's pass that leaves out the copies back."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.dialects._ops import ops
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    tokens = torch.export.Dim("n", min=2, max=4)
    first = (torch.tensor([0, 1, 2]), torch.randn(3, 2, 2))
    exported = torch.export.export(Cache(), first, dynamic_shapes=({0: tokens}, {0: tokens}), strict=False)
    runs = []
    for given in (first, (torch.tensor([6, 2]), torch.randn(2, 2, 2))):
        module = Cache()
        module(*given)
        runs.append(Run(given, flat(module(*given)), 2))
    config = ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["keys", "rows", "total"])],
        run_reinplace_pass=in_place,
        reinplace_extra_ops=frozenset([ops.edge.aten.slice_scatter.default]) if in_place else None,
    )
    return lower(exported, tuple(runs), config=config)


class Chain(nn.Module):  # type: ignore[misc]
    """Operators without a form of their own that writes to its argument."""

    def forward(self, x: Any, y: Any) -> Any:
        """``[3, 4]`` each."""
        kept = torch.maximum(torch.minimum(x * 2, y), y - 1)
        spread = torch.softmax(kept, -1)
        return torch.slice_scatter(spread + 1, y[:1], 0, 1, 2), torch.where(x > y, x > 0, y > 0)


def results_in_inputs() -> Program:
    """Upstream plans each result at the place of its first input, where nobody reads that any more."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.dialects._ops import ops

    aten = ops.edge.aten
    chosen = [aten.minimum.default, aten.maximum.default, aten._softmax.default, aten.slice_scatter.default]
    module = Chain()
    given: Tensors = (torch.randn(3, 4), torch.randn(3, 4))
    config = ExecutorchBackendConfig(reinplace_extra_ops=frozenset([*chosen, aten.where.self]))
    exported = torch.export.export(module, given, strict=False)
    return lower(exported, (Run(given, flat(module(*given)), 2),), config=config)
