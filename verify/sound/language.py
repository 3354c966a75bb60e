"""Programs with upstream's operators for language models: attention over caches that executions leave for the next."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from verify.sound.making import Program, Run, leaves, lower

_ROOM = 32
_OPERATORS = "executorch.extension.llm.custom_ops.custom_ops"


def _llama() -> Any:
    importlib.import_module(_OPERATORS)
    return torch.ops.llama


class Decoder(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A layer of a decoder, as upstream's exporters write it: four heads of queries share two of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(24, 40), nn.Linear(24, 20), nn.Linear(24, 20)
        self.register_buffer("keys", torch.zeros(1, _ROOM, 2, 10))
        self.register_buffer("values", torch.zeros(1, _ROOM, 2, 10))

    def forward(self, x: Any, position: Any) -> Any:
        """``[1, n, 24]`` and ``[1]``, the first token's position, to ``[1, n, 4, 10]``."""
        start = position[0].item()
        count = x.shape[1]
        torch._check(start >= 0)
        torch._check(start < _ROOM)
        _llama().update_cache(self.key(x).view(1, count, 2, 10), self.keys, start)
        _llama().update_cache(self.value(x).view(1, count, 2, 10), self.values, start)
        query = self.query(x).view(1, count, 4, 10)
        return _llama().custom_sdpa(query, self.keys, self.values, start, None, 0.0, True)


class Others(nn.Module):  # type: ignore[misc]
    """A ring with a mask, a cache of bytes, both in one call, and a rotation."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("ring", "keys", "values"):
            self.register_buffer(name, torch.zeros(1, _ROOM, 2, 8))
        self.register_buffer("bytes", torch.zeros(1, _ROOM, 2, 8, dtype=torch.int8))
        self.register_buffer("zeros", torch.zeros(1, _ROOM, 2, 1, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(1, _ROOM, 2, 1))

    def forward(self, query: Any, key: Any, position: Any, places: Any, mask: Any) -> Any:
        """``[1, n, 4, 8]``, ``[1, n, 2, 8]``, ``[1]``, ``[1, n]`` of the ring's places, and ``[n, 32]``."""
        llama = _llama()
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start < _ROOM)
        llama.update_cache_with_indices(key, self.ring, start, places)
        ring = llama.custom_sdpa(query, self.ring, self.ring, start, mask, 0.0, False, 0.5)
        both = llama.sdpa_with_kv_cache(
            query, key, key * 2, self.keys, self.values, start, query.shape[1], None, 0.0, True
        )
        codes, zeros, scales = _quantized(key)
        for cache, fresh in ((self.bytes, codes), (self.zeros, zeros), (self.scales, scales)):
            llama.update_cache(fresh, cache, start)
        coded = _quantized(query)
        stored = (self.zeros, self.scales)
        of_bytes = llama.custom_quantized_sdpa(
            coded[0], self.bytes, self.bytes, start, None, 0.0, True, None, coded[1], coded[2], *stored, *stored
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
    module = Decoder().requires_grad_(False)

    def given(count: int, start: int) -> tuple[Any, Any]:
        return torch.randn(1, count, 24), torch.tensor([start])

    exported = torch.export.export(
        module, given(5, 0), dynamic_shapes=({1: tokens}, None), strict=False
    )  # fmt: skip
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
    module = Others()

    def given(count: int, start: int, places: list[int]) -> tuple[Any, ...]:
        mask = torch.full((count, _ROOM), -torch.inf)
        mask[:, places] = 0.25
        return (
            torch.randn(1, count, 4, 8), torch.randn(1, count, 2, 8), torch.tensor([start]), torch.tensor([places]),
            mask,
        )  # fmt: skip

    dynamic = ({1: tokens}, {1: tokens}, None, {1: tokens}, {0: tokens})
    calls = given(3, 0, [30, 31, 0]), given(2, 3, [1, 2])
    exported = torch.export.export(module, calls[0], dynamic_shapes=dynamic, strict=False)
    first = leaves(module(*calls[0]))
    second = leaves(module(*calls[1]))
    return lower(exported, (Run(calls[0], first), Run(calls[1], second, first=(("forward", calls[0]),))))
