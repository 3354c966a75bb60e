"""Programs that need more of a runtime than operators; `verify.sound` has those with branches, loops and state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from verify.operators.aliases import cache, results_in_inputs, views
from verify.operators.given import input_viewed, inputs_written
from verify.operators.language import decoder, others
from verify.operators.lowering import Program, Run, Tensors, flat, lower


class Sizes(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Shapes and numbers computed from an input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: Any) -> Any:
        """``[n, 4]`` to what depends on ``n`` in all ways that a size can be computed with."""
        n = x.shape[0]
        return (
            torch.relu(self.layer(x)),
            torch.full(((n + 1) // 2,), 5.0),
            x.reshape(2 * n, 2),
            torch.arange(n),
            torch.full((torch.sym_max(n, 6),), 1.0),
            torch.full((torch.sym_min(n, 6) - 1,), 3.0),
            x * (n / 3),
            torch.full((math.ceil(n / 2),), 4),
            torch.zeros(n + 2).sum() + torch.ones(3, n).sum(),
            torch.cat([x, x[:1]]).cumsum(0),
        )


def dynamic(*, delegate: bool) -> Program:
    """Between 4 and 9 rows."""
    module = Sizes() if not delegate else nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(-1))
    rows = torch.export.Dim("n", min=4, max=9)
    exported = torch.export.export(module, (torch.randn(5, 4),), dynamic_shapes=({0: rows},), strict=False)
    runs = []
    for count in (4, 9, 5, 8):
        x = torch.randn(count, 4)
        runs.append(Run((x,), flat(module(x))))
    return lower(exported, (*runs, Run((torch.randn(10, 4),), ())), delegate=delegate)


class Chosen(nn.Module):  # type: ignore[misc]
    """As many results as the numbers say."""

    def forward(self, x: Any) -> Any:
        """``[4, 5]`` to the places and the values above 0, and how often each row is repeated."""
        places = torch.nonzero(x)
        chosen = torch.masked_select(x, x > 0)
        repeated = torch.repeat_interleave(x[0].abs().ceil().long())
        # How large they may become: what the exporter plans memory for.
        torch._check(places.shape[0] <= 20)
        torch._check(chosen.shape[0] <= 20)
        torch._check(repeated.shape[0] <= 50)
        return places, chosen, repeated


def data_dependent() -> Program:
    """From no element at all to every one."""
    module = Chosen()
    exported = torch.export.export(module, (torch.randn(4, 5),), strict=False)
    given = (torch.randn(4, 5), torch.zeros(4, 5), torch.ones(4, 5), -torch.ones(4, 5))
    return lower(exported, tuple(Run((x,), flat(module(x))) for x in given))


class Ordered(nn.Module):  # type: ignore[misc]
    """Images whose channels lie innermost in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """``[1, 3, 5, 6]`` through layers, and back in the usual order."""
        y = self.layer(x.to(memory_format=torch.channels_last))
        pooled = nn.functional.max_pool2d(y, 2)
        joined = torch.cat([y, y * 2], 1)
        return y.to(memory_format=torch.contiguous_format), pooled, joined.sum(1), y.mean((2, 3)), joined.flip(2)


def channels_last() -> Program:
    """With an input in either order."""
    module = Ordered().eval()
    x = torch.randn(1, 3, 5, 6)
    return lower(torch.export.export(module, (x,), strict=False), (Run((x,), flat(module(x))),))


def channels_last_input() -> Program:
    """The program says its input lies channels innermost."""
    module = Ordered().eval()
    x = torch.randn(1, 3, 5, 6).to(memory_format=torch.channels_last)
    return lower(torch.export.export(module, (x,), strict=False), (Run((x,), flat(module(x))),))


class Memory(nn.Module):  # type: ignore[misc]
    """Keys and values of up to eight tokens, and the layers that make them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(4, 12)
        self.register_buffer("keys", torch.full((8, 4), 0.25))
        self.register_buffer("values", torch.full((8, 4), -0.5))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))


class Prefill(nn.Module):  # type: ignore[misc]
    """Remembers a whole sequence."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, x: Any) -> Any:
        """``[3, 4]`` to the sum of what is remembered now."""
        _, key, value = self.memory.layers(x).chunk(3, -1)
        self.memory.keys[: x.shape[0]] = key
        self.memory.values[: x.shape[0]] = value
        self.memory.count.fill_(x.shape[0])
        return (key + value).sum()


class Decode(Prefill):
    """Remembers one token more, and looks back on all of them."""

    def forward(self, x: Any) -> Any:
        """``[1, 4]`` to ``[1, 4]``, and how many tokens there are."""
        memory = self.memory
        query, key, value = memory.layers(x).chunk(3, -1)
        memory.keys[memory.count] = key
        memory.values[memory.count] = value
        memory.count += 1
        seen = torch.arange(8) < memory.count
        weights = torch.softmax(torch.where(seen, query @ memory.keys.T, -1e9), -1)
        return weights @ memory.values, memory.count * 1


class Recall(Prefill):
    """Only reads."""

    def forward(self, x: Any) -> Any:
        """``[4]``: compared with all keys."""
        return self.memory.keys * x, self.memory.count * 1


def shared_state(*, shared: bool) -> Program:
    """Two methods write to what a third one reads, too: in one place, or each in its own."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    first = Memory().requires_grad_(False)
    sequence, token, probe = torch.randn(3, 4), torch.randn(1, 4), torch.randn(4)
    kinds: dict[str, tuple[type[Prefill], torch.Tensor]] = {
        "prefill": (Prefill, sequence), "forward": (Decode, token), "recall": (Recall, probe),
    }  # fmt: skip
    methods = {
        name: torch.export.export(kind(first), (example,), strict=False) for name, (kind, example) in kinds.items()
    }

    def eager(*calls: str) -> Tensors:
        memories = {name: copy.deepcopy(first) for name in kinds}
        if shared:
            memories = dict.fromkeys(kinds, memories["forward"])
        for name in calls:
            kind, example = kinds[name]
            results = kind(memories[name])(example)
        return flat(results)

    def run(*calls: str, executions: int = 1) -> Run:
        earlier = tuple((name, (kinds[name][1],)) for name in calls[:-1])
        wanted = eager(*calls[:-1], *[calls[-1]] * executions)
        return Run((kinds[calls[-1]][1],), wanted, executions, calls[-1], earlier)

    runs = (
        run("recall"), run("forward", executions=2), run("prefill", "forward"), run("prefill", "forward", executions=3),
        run("prefill", "forward", "forward", "recall"), run("forward", "prefill", "recall"),
    )  # fmt: skip
    config = ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["keys", "values", "count"])],
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=shared),
    )
    return lower(methods, runs, delegate=True, config=config)


class Products(nn.Module):  # type: ignore[misc]
    """Layers whose weights are whole numbers, small enough that half precision adds them exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randint(-4, 5, (7, 5)).float())
        self.offsets = nn.Parameter(torch.randint(-4, 5, (7,)).float())
        self.second = nn.Parameter(torch.randint(-4, 5, (7, 3)).float())
        self.row = nn.Parameter(torch.randint(-4, 5, (1, 3)).float())

    def forward(self, x: Any) -> Any:
        """``[n, 5]`` to ``[n, 3]``; the second layer's bias is a row of a matrix."""
        return torch.addmm(self.row, nn.functional.linear(x, self.first, self.offsets), self.second)


def products(dtype: torch.dtype, *, given: bool) -> Program:
    """Two layers.

    Args:
        given: whether their weights come when the program runs, as arguments of the delegate.
    """
    module = Products().to(dtype)
    x = torch.randint(-4, 5, (6, 5)).to(dtype)
    return lower(
        torch.export.export(module, (x,), strict=False), (Run((x,), flat(module(x))),), delegate=True,
        options={"force_non_static_weights_for_f32_linear": given},
    )  # fmt: skip


class Twice(nn.Module):  # type: ignore[misc]
    """Convolutions that an image goes through twice; all numbers are exact in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            (nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 3, padding=1, groups=2))
        )
        for one in self.parameters():
            one.data = torch.randint(-1, 2, one.shape).float()

    def forward(self, x: Any) -> Any:
        """``[1, 2, h, w]`` to that after each kind of layer."""
        return tuple(layer(layer(x)) for layer in self.layers)


def same_weights(dtype: torch.dtype) -> Program:
    """Several nodes of a delegate have the same weights."""
    module = Twice().to(dtype)
    x = torch.randint(-2, 3, (1, 2, 6, 5)).to(dtype)
    return lower(
        torch.export.export(module, (x,), strict=False), (Run((x,), flat(module(x))),), delegate=True
    )  # fmt: skip


def single_windows() -> Program:
    """Pooling with windows of one element, which XNNPACK refuses and exporters delegate."""
    module = nn.Sequential(nn.MaxPool2d(1), nn.Conv2d(2, 3, 1), nn.MaxPool2d(1), nn.ReLU6()).eval()
    x = torch.randn(1, 2, 6, 5)
    return lower(
        torch.export.export(module, (x,), strict=False), (Run((x,), flat(module(x))),), delegate=True
    )  # fmt: skip


PROGRAMS: dict[str, Callable[[], Program]] = {
    "dynamic": lambda: dynamic(delegate=False),
    "dynamic-delegated": lambda: dynamic(delegate=True),
    "data-dependent": data_dependent,
    "channels-last": channels_last,
    "channels-last-input": channels_last_input,
    "shared-state": lambda: shared_state(shared=True),
    "separate-state": lambda: shared_state(shared=False),
    "bias-in-a-row": lambda: products(torch.float32, given=False),
    "weights-given": lambda: products(torch.float32, given=True),
    "weights-given-in-halves": lambda: products(torch.float16, given=True),
    "same-weights": lambda: same_weights(torch.float32),
    "same-weights-in-halves": lambda: same_weights(torch.float16),
    "single-windows": single_windows,
    "inputs-written": inputs_written,
    "input-viewed": input_viewed,
    "views": lambda: views(planned=True),
    "views-of-unplanned": lambda: views(planned=False),
    "cache": lambda: cache(in_place=False),
    "cache-in-place": lambda: cache(in_place=True),
    "results-in-inputs": results_in_inputs,
    "language-decoder": decoder,
    "language-others": others,
}

KERNELS = {
    "views": ("executorch_prim::et_view.default",),
    "views-of-unplanned": ("executorch_prim::et_view.default",),
    "cache-in-place": ("aten::copy_", "aten::index_put_", "executorch_prim::et_view.default"),
    "language-decoder": ("llama::custom_sdpa.out", "llama::update_cache.out"),
    "language-others": (
        "llama::custom_quantized_sdpa.out", "llama::fast_hadamard_transform.out", "llama::sdpa_with_kv_cache.out",
        "llama::update_cache_with_indices.out",
    ),
    "data-dependent": ("aten::nonzero.out", "aten::masked_select.out", "aten::repeat_interleave.Tensor_out"),
}  # fmt: skip
"""Kernels that a program is there to exercise."""
