"""Programs that need more of a runtime than operators: sizes, state, orders in memory, and values that share it.

In some of them upstream's passes put several values in one place, or a runtime may read inputs where they are, if it
sees who else reads and writes there. The other families have those with branches, loops and more state.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from verify.sound.making import Program, Run, input_written, leaves, lower, made, settings, sound


def _sizes(m: Any, x: Any) -> Any:
    """``[n, 4]`` to what depends on ``n`` in all ways that a size can be computed with."""
    n = x.shape[0]
    return (
        torch.relu(m.layer(x)),
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
    module = made(_sizes, layer=nn.Linear(4, 6))
    if delegate:
        module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(-1)).requires_grad_(False)
    given = [(torch.randn(count, 4),) for count in (5, 4, 9, 8)]
    program = sound(module, *given, sizes=({0: Dim("n", min=4, max=9)},), delegate=delegate)
    return replace(program, runs=(*program.runs, Run((torch.randn(10, 4),), ())))


def _chosen(m: Any, x: Any) -> Any:
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
    given = torch.randn(4, 5), torch.zeros(4, 5), torch.ones(4, 5), -torch.ones(4, 5)
    return sound(made(_chosen), *((x,) for x in given))


def _ordered(m: Any, x: Any) -> Any:
    """``[1, 3, 5, 6]`` through layers with channels innermost in memory, and back in the usual order."""
    y = m.layer(x.to(memory_format=torch.channels_last))
    pooled = nn.functional.max_pool2d(y, 2)
    joined = torch.cat([y, y * 2], 1)
    return y.to(memory_format=torch.contiguous_format), pooled, joined.sum(1), y.mean((2, 3)), joined.flip(2)


def channels_last(order: torch.memory_format) -> Program:
    """With an input in either order, as the program says."""
    x = torch.randn(1, 3, 5, 6).to(memory_format=order)
    return sound(made(_ordered, layer=nn.Conv2d(3, 4, 3, padding=1)), (x,))


def _memory() -> Any:
    """Keys and values of up to eight tokens, and the layers that make them."""
    state = {"keys": torch.full((8, 4), 0.25), "values": torch.full((8, 4), -0.5)}
    return made(lambda m: m.keys, layers=nn.Linear(4, 12), count=torch.zeros(1, dtype=torch.int64), **state)


def _prefill(m: Any, x: Any) -> Any:
    """Remembers a whole sequence: ``[3, 4]`` to the sum of what is remembered now."""
    _, key, value = m.memory.layers(x).chunk(3, -1)
    m.memory.keys[: x.shape[0]] = key
    m.memory.values[: x.shape[0]] = value
    m.memory.count.fill_(x.shape[0])
    return (key + value).sum()


def _decode(m: Any, x: Any) -> Any:
    """Remembers one token more, and looks back on all: ``[1, 4]`` to ``[1, 4]``, and how many tokens there are."""
    memory = m.memory
    query, key, value = memory.layers(x).chunk(3, -1)
    memory.keys[memory.count] = key
    memory.values[memory.count] = value
    memory.count += 1
    seen = torch.arange(8) < memory.count
    weights = torch.softmax(torch.where(seen, query @ memory.keys.T, -1e9), -1)
    return weights @ memory.values, memory.count * 1


def _recall(m: Any, x: Any) -> Any:
    """Only reads: ``[4]``, compared with all keys."""
    return m.memory.keys * x, m.memory.count * 1


def shared_state(*, shared: bool) -> Program:
    """Two methods write to what a third one reads, too: in one place, or each in its own."""
    first = _memory()
    kinds = {
        "prefill": (_prefill, torch.randn(3, 4)), "forward": (_decode, torch.randn(1, 4)),
        "recall": (_recall, torch.randn(4)),
    }  # fmt: skip
    methods = {
        name: torch.export.export(made(kind, memory=first), (example,), strict=False)
        for name, (kind, example) in kinds.items()
    }

    def eager(*calls: str) -> tuple[Any, ...]:
        memories = {name: copy.deepcopy(first) for name in kinds}
        if shared:
            memories = dict.fromkeys(kinds, memories["forward"])
        for name in calls:
            kind, example = kinds[name]
            results = made(kind, memory=memories[name])(example)
        return leaves(results)

    def run(*calls: str, executions: int = 1) -> Run:
        earlier = tuple((name, (kinds[name][1],)) for name in calls[:-1])
        wanted = eager(*calls[:-1], *[calls[-1]] * executions)
        return Run((kinds[calls[-1]][1],), wanted, executions, calls[-1], earlier)

    runs = (
        run("recall"), run("forward", executions=2), run("prefill", "forward"), run("prefill", "forward", executions=3),
        run("prefill", "forward", "forward", "recall"), run("forward", "prefill", "recall"),
    )  # fmt: skip
    config = settings(state=["keys", "values", "count"], share_mutable_buffers=shared)
    return lower(methods, runs, delegate=True, config=config)


def _layers(m: Any, x: Any) -> Any:
    """``[n, 5]`` to ``[n, 3]``; the second layer's bias is a row of a matrix."""
    first, offsets, second, row = m.weights
    return torch.addmm(row, nn.functional.linear(x, first, offsets), second)


def products(dtype: torch.dtype, *, given: bool) -> Program:
    """Two layers of whole numbers, small enough that half precision adds them exactly.

    Args:
        given: whether their weights come when the program runs, as arguments of the delegate.
    """
    weights = [torch.randint(-4, 5, shape).float() for shape in ((7, 5), (7,), (7, 3), (1, 3))]
    module = made(_layers, weights=nn.ParameterList(weights)).to(dtype)
    x = torch.randint(-4, 5, (6, 5)).to(dtype)
    return sound(module, (x,), delegate=True, options={"force_non_static_weights_for_f32_linear": given})


def same_weights(dtype: torch.dtype) -> Program:
    """Several nodes of a delegate have the same weights; all numbers are exact in half precision."""
    kinds = (nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 3, padding=1, groups=2))
    module = made(lambda m, x: tuple(layer(layer(x)) for layer in m.layers), layers=nn.ModuleList(kinds))
    for one in module.parameters():
        one.data = torch.randint(-1, 2, one.shape).float()
    return sound(module.to(dtype), (torch.randint(-2, 3, (1, 2, 6, 5)).to(dtype),), delegate=True)


def single_windows() -> Program:
    """Pooling with windows of one element, which XNNPACK refuses and exporters delegate."""
    module = nn.Sequential(nn.MaxPool2d(1), nn.Conv2d(2, 3, 1), nn.MaxPool2d(1), nn.ReLU6()).requires_grad_(False)
    return sound(module.eval(), (torch.randn(1, 2, 6, 5),), delegate=True)


def _written(m: Any, written: Any, read: Any, passed: Any) -> Any:
    """An input that the method writes to, one that only a delegate reads, and one that is also a result."""
    result = m.layer(read) + written
    written.add_(m.layer(passed))
    return result, written * 2, passed, passed.sin()


def inputs_written() -> Program:
    """All inputs are ``[64, 64]``."""
    given = [torch.randn(64, 64) for _ in range(3)]
    return input_written(made(_written, layer=nn.Linear(64, 64)), *given, delegate=True)


def input_viewed() -> Program:
    """An input that only a view of it is read of: the exporter leaves the view out, as a value in the same memory."""
    module = made(lambda m, rows: m.table(rows.view(-1, 4)), table=nn.Embedding(50, 8))
    return sound(module, (torch.randint(1, 50, (2, 12)),), delegate=True, executions=(1, 3))


def _heads(m: Any, x: Any) -> Any:
    """``[2, n, 16]``, each row cut into heads: views of an intermediate value, and of the input."""
    n, t, _ = x.shape
    return m.layer(x).view(n, t, 4, 4).cumsum(1).view(n, t, 16), x.view(n * t, 2, 8).sin()


def views(*, planned: bool) -> Program:
    """At one row, some, and as many as there may be; ``planned``: inputs and outputs have memory of the program's."""
    given = [(torch.randn(2, count, 16),) for count in (6, 1, 7, 32)]
    return sound(
        made(_heads, layer=nn.Linear(16, 16)), *given, sizes=({1: Dim("n", min=1, max=32)},), delegate=planned,
        config=settings(inputs=planned, outputs=planned),
    )  # fmt: skip


def _cache(m: Any, position: Any, x: Any) -> Any:
    """Keys of up to eight tokens, written in place, by way of views, and read again: ``[n]`` places, ``[n, 2, 2]``."""
    m.keys[position] = x
    m.rows.view(-1).index_put_((position,), x.sum((1, 2)))
    m.total[:2] = x.sum((0, 1))
    return m.keys + 1, m.rows * 1, m.total * 1


def cache(*, in_place: bool) -> Program:
    """Executions in a row; ``in_place``: by upstream's pass that leaves out the copies back."""
    from executorch.exir.dialects._ops import ops

    state = {"keys": torch.zeros(8, 2, 2), "rows": torch.zeros(4, 2), "total": torch.zeros(3)}
    given = [(torch.tensor([0, 1, 2]), torch.randn(3, 2, 2)), (torch.tensor([6, 2]), torch.randn(2, 2, 2))]
    tokens = {0: Dim("n", min=2, max=4)}
    passes = {"run_reinplace_pass": True, "reinplace_extra_ops": frozenset([ops.edge.aten.slice_scatter.default])}
    config = settings(state=list(state), **(passes if in_place else {}))
    return sound(made(_cache, **state), *given, sizes=(tokens, tokens), config=config, executions=(2,))


def _chain(m: Any, x: Any, y: Any) -> Any:
    """Operators without a form of their own that writes to its argument; ``[3, 4]`` each."""
    kept = torch.maximum(torch.minimum(x * 2, y), y - 1)
    spread = torch.softmax(kept, -1)
    return torch.slice_scatter(spread + 1, y[:1], 0, 1, 2), torch.where(x > y, x > 0, y > 0)


def results_in_inputs() -> Program:
    """Upstream plans each result at the place of its first input, where nobody reads that any more."""
    from executorch.exir.dialects._ops import ops

    aten = ops.edge.aten
    chosen = [aten.minimum.default, aten.maximum.default, aten._softmax.default, aten.slice_scatter.default]
    config = settings(reinplace_extra_ops=frozenset([*chosen, aten.where.self]))
    return sound(made(_chain), (torch.randn(3, 4), torch.randn(3, 4)), config=config, executions=(2,))


# With upstream's operators for language models: attention over caches that executions leave for the next.

_ROOM = 32
_OPERATORS = "executorch.extension.llm.custom_ops.custom_ops"


def _llama() -> Any:
    importlib.import_module(_OPERATORS)
    return torch.ops.llama


def _decoded(m: Any, x: Any, position: Any) -> Any:
    """A layer of a decoder, as upstream's exporters write it: four heads of queries share two of keys and values.

    ``[1, n, 24]`` and ``[1]``, the first token's position, to ``[1, n, 4, 10]``.
    """
    start = _within(position)
    count = x.shape[1]
    _llama().update_cache(m.key(x).view(1, count, 2, 10), m.keys, start)
    _llama().update_cache(m.value(x).view(1, count, 2, 10), m.values, start)
    return _llama().custom_sdpa(m.query(x).view(1, count, 4, 10), m.keys, m.values, start, None, 0.0, True)


def _within(position: Any) -> Any:
    """A position of the caches as a number, of which the exporter knows that."""
    start = position[0].item()
    torch._check(start >= 0)
    torch._check(start < _ROOM)
    return start


def _attended(m: Any, query: Any, key: Any, position: Any, places: Any, mask: Any) -> Any:
    """A ring with a mask, a cache of bytes, both in one call, and a rotation.

    ``[1, n, 4, 8]``, ``[1, n, 2, 8]``, ``[1]``, ``[1, n]`` of the ring's places, and ``[n, 32]``.
    """
    llama, start = _llama(), _within(position)
    llama.update_cache_with_indices(key, m.ring, start, places)
    ring = llama.custom_sdpa(query, m.ring, m.ring, start, mask, 0.0, False, 0.5)
    both = llama.sdpa_with_kv_cache(query, key, key * 2, m.keys, m.values, start, query.shape[1], None, 0.0, True)
    codes, zeros, scales = _quantized(key)
    for cache, fresh in ((m.bytes, codes), (m.zeros, zeros), (m.scales, scales)):
        llama.update_cache(fresh, cache, start)
    coded, stored = _quantized(query), (m.zeros, m.scales)
    of_bytes = llama.custom_quantized_sdpa(
        coded[0], m.bytes, m.bytes, start, None, 0.0, True, None, coded[1], coded[2], *stored, *stored
    )
    return ring, both, of_bytes, llama.fast_hadamard_transform(query)


def _quantized(x: Any) -> tuple[Any, Any, Any]:
    """Bytes, with a zero point and a scale for each row."""
    scales = x.abs().amax(-1, keepdim=True) / 100 + 1e-6
    zeros = torch.full_like(scales, 3).to(torch.int8)
    return (torch.round(x / scales) + 3).to(torch.int8), zeros, scales


def decoder() -> Program:
    """A prompt, more tokens, a token at a time to the end of the cache; and one that is beyond it."""
    tokens = torch.export.Dim("n", min=1, max=_ROOM)
    lines = {"query": nn.Linear(24, 40), "key": nn.Linear(24, 20), "value": nn.Linear(24, 20)}
    module = made(_decoded, **lines, keys=torch.zeros(1, _ROOM, 2, 10), values=torch.zeros(1, _ROOM, 2, 10))

    def given(count: int, start: int) -> tuple[Any, Any]:
        return torch.randn(1, count, 24), torch.tensor([start])

    exported = torch.export.export(module, given(5, 0), dynamic_shapes=(({1: tokens}, None),), strict=False)
    calls = [given(7, 0), given(1, 7), given(20, 8), *(given(1, at) for at in range(28, _ROOM))]
    runs = []
    for last in range(1, len(calls) + 1):
        module.keys.zero_()
        module.values.zero_()
        results = [leaves(module(*one)) for one in calls[:last]]
        runs.append(Run(calls[last - 1], results[-1], first=tuple(("forward", one) for one in calls[: last - 1])))
    runs.append(Run(given(1, _ROOM), ()))
    return lower(exported, tuple(runs), delegate=True)


def others() -> Program:
    """Two executions, the second with other places."""
    tokens = torch.export.Dim("n", min=2, max=8)
    state = {name: torch.zeros(1, _ROOM, 2, 8) for name in ("ring", "keys", "values")}
    codes = {"bytes": torch.zeros(1, _ROOM, 2, 8).char(), "zeros": torch.zeros(1, _ROOM, 2, 1).char()}
    module = made(_attended, **state, **codes, scales=torch.ones(1, _ROOM, 2, 1))

    def given(count: int, start: int, places: list[int]) -> tuple[Any, ...]:
        mask = torch.full((count, _ROOM), -torch.inf)
        mask[:, places] = 0.25
        return (
            torch.randn(1, count, 4, 8), torch.randn(1, count, 2, 8), torch.tensor([start]), torch.tensor([places]),
            mask,
        )  # fmt: skip

    dynamic = ({1: tokens}, {1: tokens}, None, {1: tokens}, {0: tokens})
    calls = given(3, 0, [30, 31, 0]), given(2, 3, [1, 2])
    exported = torch.export.export(module, calls[0], dynamic_shapes=(dynamic,), strict=False)
    first = leaves(module(*calls[0]))
    second = leaves(module(*calls[1]))
    return lower(exported, (Run(calls[0], first), Run(calls[1], second, first=(("forward", calls[0]),))))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "dynamic": lambda: dynamic(delegate=False),
    "dynamic-delegated": lambda: dynamic(delegate=True),
    "data-dependent": data_dependent,
    "channels-last": lambda: channels_last(torch.contiguous_format),
    "channels-last-input": lambda: channels_last(torch.channels_last),
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
