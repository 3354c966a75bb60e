"""Networks that only move elements, or compute with whole numbers: every engine gives the same bits, or is wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from models.nets.making import made

BUCKETS = 32


class Moved(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """An image cut, rolled, shuffled, padded and picked from, as vision transformers and upscalers do; no sums."""

    def forward(self, x: Any, rows: Any) -> tuple[Any, ...]:
        """``[n, 4, 8, 8]`` and ``int64 [picked]``, rows of windows, to six rearrangements."""
        n = x.shape[0]
        windows = x.roll((2, 2), (2, 3)).reshape(n, 4, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(4 * n, 16, 4)
        padded = functional.pad(functional.pixel_shuffle(x, 2), (1, 2, 0, 3), value=1.5)
        first, second = x.flip([3]).split(2, 1)
        swapped = torch.cat([second, first.transpose(2, 3)], 1)
        woven = torch.stack([x[:, :, ::2], x[:, :, 1::2]], 3).flatten(2)
        picked = windows.index_select(0, rows).repeat(1, 2, 1)
        larger = torch.where(x > x.flip([1]), x, x.flip([1]))
        return windows, padded, swapped, woven, picked, larger


def moved() -> tuple[Any, ...]:
    """Two images, and five of their windows."""
    return made(Moved(), torch.randn(2, 4, 8, 8), torch.tensor([7, 0, 3, 3, 5]))


class Hashed(nn.Module):  # type: ignore[misc]
    """Words to counts of hashed pairs, as classifiers of text on small devices do: whole numbers throughout."""

    def forward(self, words: Any) -> tuple[Any, ...]:
        """``int64 [n, tokens]``, 0 for padding, to codes, counts ``[n, BUCKETS]``, their sums, and who is there."""
        codes = (words * 31 + words.roll(1, 1) * 17 + 7) % 1009
        mixed = torch.bitwise_xor(codes, torch.bitwise_right_shift(codes, 3))
        buckets = torch.bitwise_and(mixed, BUCKETS - 1)
        present = words != 0
        counts = torch.zeros(words.shape[0], BUCKETS, dtype=torch.int64).scatter_add(1, buckets, present.long())
        share = torch.div(counts * 255, words.shape[1], rounding_mode="floor").to(torch.uint8)
        busiest = counts.amax(1).to(torch.int32)
        return codes, counts, counts.cumsum(1), share, busiest, torch.logical_and(present, buckets > 8).any(1)


def hashed() -> tuple[Any, ...]:
    """Two texts, one of them shorter."""
    words = torch.randint(1, 30_000, (2, 24))
    words[1, 15:] = 0
    return made(Hashed(), words)
