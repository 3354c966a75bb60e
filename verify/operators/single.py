"""Programs of operators at edges that no draw has: long lines, orders in memory, equal numbers, NaN, no element.

A group is a function of a few tensors that returns many results, so that one export tests many operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from verify.operators.draws import portable

Tensors = tuple[torch.Tensor, ...]
Group = tuple[Callable[..., tuple[Any, ...]], Callable[[], Tensors]]


def _floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _integers(*shape: int, low: int = -20, high: int = 20, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def masks(x: torch.Tensor, flags: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows that a mask of attention leaves empty, and other uses of flags; ``[2, 6, 37, 50]``."""
    lost = torch.logical_not(flags)
    full = torch.any(flags, -1, True)
    turned = x.transpose(1, 2)
    return (
        lost, full, flags.any(-1), flags.any(2), flags.any(3, True), torch.logical_not(full), torch.where(flags, x, -x),
        torch.where(torch.logical_not(full), torch.zeros_like(x), x), torch.where(full, x, x.amax()),
        torch.where(lost, x.amin(), x), torch.where(flags[:, :1], x, x[..., :1]), torch.where(flags[..., :1], x[0], x),
        torch.where(flags.transpose(1, 2), turned, turned + 1), torch.where(flags, x.double(), x.double() + 1),
        torch.where(flags, x.half(), x.half() * 2), torch.where(flags, flags[:1], lost), torch.logical_not(lost[:, 1]),
        torch.where(flags, x, 2.0), torch.where(flags, 3, x.long()), torch.where(flags, x.int(), x),
    )  # fmt: skip


def edges(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Moves of any element of ``[2, 6, 5, 4]``, by indices below 2: without elements, by columns, in other orders."""
    last, put = x.to(memory_format=torch.channels_last), torch.ops.aten.index_put.default
    return (
        torch.cat([x[:, :0], x], 1), torch.cat([x[:, :, :, :1], x], 3), x.index_select(1, i[:0]), x[:, i[:0]],
        x.index_select(0, i), x.index_select(1, i + 3), x.index_select(3, i), x[:, :, i, i + 2], x[i, :, i + 1],
        x[-1 - i], x[:, -2 - i], x[i[:, None], i + 1], x[i[:3, None, None], :, i[:4, None], i], x[:, i, :, i],
        last.index_select(1, i), last[:, i], last[:, :, i], last.flip(1), last.gather(1, i.view(1, -1, 1, 1)),
        x.gather(3, i.view(1, 1, 1, -1)), x.permute(0, 2, 3, 1), x.permute(3, 2, 1, 0), x.transpose(1, 3),
        x.repeat(1, 1, 1, 3), x.repeat(3, 1, 2, 2), x.expand(3, *x.shape), x[:, :, :1].expand(*x.shape),
        x.reshape(2, 6, 20).transpose(1, 2), x.unfold(1, 3, 2), torch.stack([x, x], 4), torch.stack([x, x], 0),
        put(x, [None, i[:1] + 2], x[:, 1:2]), put(x, [i[:1], None, i[:1] + 1], x[:1, :, 1]),
        put(last, [None, i[:1]], x[:, :1]), put(x, [i[:1]], x[0, 0, 0]), torch.arange(300), torch.arange(7, -9, -2),
        torch.arange(3, 9, dtype=torch.int32), torch.arange(0.5, 90.0, 0.25), torch.full((3, 5), 4, dtype=x.dtype),
    )  # fmt: skip


def lines(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of ``[4, 37, 50]``, all numbers different, and a row: along memory, across it, and of few elements."""
    some = x[:, 5:10, 3:6]
    return (
        x.sum(0), x.sum(1), x.sum(2), x.sum([0, 2]), x.sum([1, 2]), x.sum(), x.mean(1), x.mean([0, 1]), x.mean(2),
        x.amax(1), x.amax(2), x.amin(0), x.amin([0, 2]), x.amax(), x.argmax(0), x.argmax(1), x.argmin(2), x.argmax(),
        *x.max(1), *x.min(2), x.var(1), x.var(2), x.prod(0), x.cumsum(0), x.cumsum(2), x.softmax(1), x.softmax(2),
        x.log_softmax(1), x.log_softmax(2), some.sum(1), some.amax(2), some.argmax(1), some.softmax(2), some.mean(),
        *x.topk(3, dim=1), *x.topk(40, dim=2), *x.topk(1, dim=2, largest=False), *x.topk(36, 1, False), *x.sort(1),
        functional.layer_norm(x, [50]), functional.layer_norm(x, [50], weight), functional.layer_norm(some, [3]),
        functional.layer_norm(x, [37, 50]), functional.layer_norm(x, [50], weight, weight + 1),
        functional.group_norm(x[:, :36], 4), functional.group_norm(x, 37, weight[:37], weight[1:38]),
        functional.batch_norm(x, weight[:37], weight[:37].abs() + 1, None, weight[2:39]),
        functional.batch_norm(x.transpose(1, 2), weight, weight.abs() + 1),
    )  # fmt: skip


def extremes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of rows that are longer than what is looked through at once."""
    return x.argmax(1), x.argmin(1), x.argmax(), x.argmin(), x.max(1).indices, x.min(1).indices, x[:2].argmax()


def _with_equals_and_nans() -> torch.Tensor:
    """Rows of 9300: all different, all equal, the largest twice, the largest last, one NaN, several."""
    x = _different(6, 9300)
    x[1] = 2.5
    x[2, [4095, 4096, 8200]] = 99.0
    x[2, [4600, 9200]] = -99.0
    x[3, -1] = 99.0
    x[4, 4700] = float("nan")
    x[5, [4099, 4530, 9299]] = float("nan")
    return x


def _different(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiples of a 1024th, each once: the largest is one alone."""
    count = torch.Size(shape).numel()
    return ((torch.randperm(count) - count // 2) / 1024).reshape(shape).to(dtype)


GROUPS: dict[str, Group] = {
    "edges": (edges, lambda: (_floats(2, 6, 5, 4), _integers(5, low=0, high=2))),
    "edges-half": (edges, lambda: (_floats(2, 6, 5, 4, dtype=torch.float16), _integers(5, low=0, high=2))),
    "edges-double": (edges, lambda: (_floats(2, 6, 5, 4, dtype=torch.float64), _integers(5, low=0, high=2))),
    "edges-bytes": (edges, lambda: (_integers(2, 6, 5, 4, low=0, dtype=torch.uint8), _integers(5, low=0, high=2))),
    "edges-bool": (edges, lambda: (_integers(2, 6, 5, 4) > 0, _integers(5, low=0, high=2))),
    "edges-long": (edges, lambda: (_integers(2, 6, 5, 4), _integers(5, low=0, high=2))),
    "masks": (masks, lambda: (_floats(2, 6, 37, 50), _floats(2, 6, 37, 1) + _floats(2, 6, 37, 50) > 1.5)),
    "extremes": (extremes, lambda: (_with_equals_and_nans(),)),
    "lines": (lines, lambda: (_different(4, 37, 50), _floats(50))),
    "lines-double": (lines, lambda: (_different(4, 37, 50, dtype=torch.float64), _floats(50, dtype=torch.float64))),
}  # fmt: skip


def export(name: str, seed: int) -> tuple[bytes, Tensors, tuple[torch.Tensor, ...], tuple[str, ...]]:
    """The program of group ``name`` without delegates, inputs, ATen's results, and the operators in it."""
    torch.manual_seed(seed)
    function, make_inputs = GROUPS[name]
    inputs = make_inputs()
    program, operators = portable(function, inputs, preserve=False)
    return program, inputs, function(*inputs), operators
