"""Shapes, element types and numbers for operators' tests, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Call = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
"""A function of tensors, and the tensors."""

FLOATS = (torch.float32, torch.float32, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ALL = (*FLOATS, *INTEGERS, torch.bool)

SIZES = st.integers(1, 5)
LONG = st.sampled_from([1, 2, 3, 7, 17, 300])
"""Some longer than the blocks that kernels work in."""


@dataclass(frozen=True)
class Case:
    """One use of a kernel."""

    kernel: str
    """As it is registered: ``aten::add.out``."""
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


def shape(draw: Draw, least: int = 1, most: int = 4) -> tuple[int, ...]:
    """Of ``least`` to ``most`` dimensions, seldom a long one."""
    rank = draw(st.integers(least, most))
    return tuple(draw(LONG if rank <= 2 else SIZES) for _ in range(rank))


def broadcast(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that go together: sizes of 1 and missing dimensions on either side."""
    whole = shape(draw)
    sides = []
    for _ in range(2):
        cut = whole[draw(st.integers(0, len(whole))) :]
        sides.append(tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in cut))
    return sides[0], sides[1]


def dtype(draw: Draw, of: Sequence[torch.dtype]) -> torch.dtype:
    """One of ``of``."""
    return draw(st.sampled_from(of))


def tensor(draw: Draw, shape: Sequence[int], dtype: torch.dtype, low: float = -3, high: float = 3) -> torch.Tensor:
    """Numbers between ``low`` and ``high`` from a seed that hypothesis draws."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator) > 0
    if dtype.is_floating_point:
        # Away from both ends, so that rounding to half precision does not leave the range.
        found = torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * (high - low) * 0.998
        return (found + low + (high - low) * 0.001).to(dtype)
    first = max(low, 0) if dtype == torch.uint8 else low
    return torch.randint(round(first), round(high) + 1, tuple(shape), generator=generator).to(dtype)


def dim_of(draw: Draw, x: torch.Tensor) -> int:
    """A dimension, from either end."""
    return int(draw(st.integers(-x.dim(), x.dim() - 1)))


def some_dims(draw: Draw, x: torch.Tensor) -> list[int]:
    """At least one dimension, each once."""
    return sorted(draw(st.sets(st.integers(0, x.dim() - 1), min_size=1)))
