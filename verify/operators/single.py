"""Programs of operators at edges that no draw has: types that mix, long rows, orders in memory, equal numbers, NaN.

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


def unary(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of any floats."""
    near = x.abs().clamp(max=0.9)
    return (
        x.abs(), -x, x.sign(), x.relu(), x.ceil(), x.floor(), x.round(), x.trunc(), x.exp(), x.expm1(), x.sin(),
        x.cos(), x.tan(), x.sinh(), x.cosh(), x.tanh(), x.atan(), x.asinh(), x.erf(), x.sigmoid(), near.asin(),
        near.acos(), near.atanh(), (near + 1).acosh(), (near + 0.1).log(), (near + 0.1).log2(), near.log1p(),
        (near + 0.1).log10(), (near + 0.1).sqrt(), (near + 0.1).rsqrt(), (near + 0.1).reciprocal(), x.isnan(),
        x.isinf(), x.logical_not(), functional.gelu(x), functional.gelu(x, approximate="tanh"),
        functional.leaky_relu(x, 0.1), functional.elu(x, 1.5), functional.hardtanh(x, -0.5, 0.7),
        functional.silu(x), functional.hardswish(x), functional.hardsigmoid(x), x.clamp(-0.3, 0.4), x.clamp(min=0.1),
        x.clamp(max=0.1), (near * 0.8 + 0.1).logit(), (near * 0.8 + 0.1).logit(1e-3),
    )  # fmt: skip


def binary(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of floats that broadcast together."""
    apart = b.abs() + 0.5
    return (
        a + b, a - b, a * b, a / apart, torch.add(a, b, alpha=2), torch.sub(a, b, alpha=3), torch.maximum(a, b),
        torch.minimum(a, b), a == b, a != b, a < b, a <= b, a > b, a >= b, torch.atan2(a, apart), a // apart,
        a % apart, torch.fmod(a, apart), a.abs() ** b, torch.logical_and(a, b), torch.logical_or(a, b),
        torch.logical_xor(a, b), torch.div(a, apart, rounding_mode="floor"), torch.div(a, apart, rounding_mode="trunc"),
        torch.where(a > b, a, b), torch.clamp(a, min=b), a + 1.5, a - 1, a * 3, a / 4, 2 - a, a == 1.0, a < 0.2,
        a.abs() ** 2.5, a % 0.7, torch.fmod(a, 0.7), a.masked_fill(a > b, 7.0), 2.0 ** a,
    )  # fmt: skip


def rows(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of rows that are longer than what is converted at once, and a number for each."""
    return a + b, a * b, b - a, a / (b.abs() + 0.5), a.abs(), a > b, a.to(torch.float32)


def integers(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of integers, none of them 0 in b."""
    return (
        a + b, a - b, a * b, a / b, a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a & b,
        a | b, a ^ b, ~a, torch.bitwise_left_shift(a, 2),
        torch.bitwise_right_shift(a, 1), a == b, a < b, a.abs(), -a, a.sign(), a.clamp(-3, 5), torch.maximum(a, b),
        torch.minimum(a, b), a.sum(), a.sum(1), a.amax(1), a.argmin(1), a.cumsum(1), a.prod(1), a.to(torch.float32),
        a + 1.5, a.any(), a.any(1), torch.where(a > b, a, b), a.flip(1), a.pow(2), a.float().exp(), a // 3, a % 4,
    )  # fmt: skip


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


def products(a: torch.Tensor, b: torch.Tensor, batch: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of two matrices that go together, a batch of the first's shape, and a row of the result's width."""
    return (
        a @ b, torch.addmm(bias, a, b), torch.addmm(bias, a, b, beta=0.5, alpha=2), functional.linear(a, b.t(), bias),
        functional.linear(batch, b.t()), torch.bmm(batch, batch.transpose(1, 2)), batch @ b,
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
    "unary": (unary, lambda: (_floats(3, 17),)),
    "unary-half": (unary, lambda: (_floats(3, 17, dtype=torch.float16),)),
    "unary-double": (unary, lambda: (_floats(2, 300, dtype=torch.float64),)),
    "binary": (binary, lambda: (_floats(4, 5), _floats(4, 5))),
    "binary-broadcast": (binary, lambda: (_floats(2, 1, 5), _floats(3, 1))),
    "binary-half": (binary, lambda: (_floats(4, 5, dtype=torch.float16), _floats(5, dtype=torch.float16))),
    "binary-mixed": (binary, lambda: (_floats(4, 5), _floats(4, 5, dtype=torch.float64))),
    "binary-long": (binary, lambda: (_floats(3, 1300), _floats(3, 1))),
    "binary-by-one": (binary, lambda: (_floats(4, 700), _floats(1, 1, 1))),
    "binary-by-double": (binary, lambda: (_floats(4, 5), _floats(1, dtype=torch.float64))),
    "rows-half": (rows, lambda: (_floats(3, 1300, dtype=torch.float16), _floats(3, 1, dtype=torch.float16))),
    "integers": (integers, lambda: (_integers(4, 6), _integers(4, 6, low=1))),
    "integers-narrow": (
        integers, lambda: (_integers(4, 6, dtype=torch.int32), _integers(4, 6, low=1, high=9, dtype=torch.int8))
    ),
    "products": (products, lambda: (_floats(3, 7), _floats(7, 5), _floats(2, 3, 7), _floats(5))),
    "edges": (edges, lambda: (_floats(2, 6, 5, 4), _integers(5, low=0, high=2))),
    "edges-half": (edges, lambda: (_floats(2, 6, 5, 4, dtype=torch.float16), _integers(5, low=0, high=2))),
    "edges-double": (edges, lambda: (_floats(2, 6, 5, 4, dtype=torch.float64), _integers(5, low=0, high=2))),
    "edges-bytes": (
        edges, lambda: (_integers(2, 6, 5, 4, low=0, dtype=torch.uint8), _integers(5, low=0, high=2))
    ),
    "edges-bool": (edges, lambda: (_integers(2, 6, 5, 4) > 0, _integers(5, low=0, high=2))),
    "edges-long": (edges, lambda: (_integers(2, 6, 5, 4), _integers(5, low=0, high=2))),
    "masks": (masks, lambda: (_floats(2, 6, 37, 50), _floats(2, 6, 37, 1) + _floats(2, 6, 37, 50) > 1.5)),
    "extremes": (extremes, lambda: (_with_equals_and_nans(),)),
    "lines": (lines, lambda: (_different(4, 37, 50), _floats(50))),
    "lines-double": (lines, lambda: (_different(4, 37, 50, dtype=torch.float64), _floats(50, dtype=torch.float64))),
    "products-tall": (products, lambda: (_floats(9, 400) / 50, _floats(400, 13), _floats(3, 9, 400) / 50, _floats(13))),
    "products-flat": (products, lambda: (_floats(3, 40), _floats(40, 19), _floats(2, 3, 40), _floats(19))),
    "products-double": (
        products,
        lambda: tuple(_floats(*shape, dtype=torch.float64) for shape in ((5, 33), (33, 7), (2, 5, 33), (7,))),
    ),
    "products-empty": (products, lambda: (_floats(3, 0), _floats(0, 5), _floats(2, 3, 0), _floats(5))),
}  # fmt: skip


def export(name: str, seed: int) -> tuple[bytes, Tensors, tuple[torch.Tensor, ...], tuple[str, ...]]:
    """The program of group ``name`` without delegates, inputs, ATen's results, and the operators in it."""
    torch.manual_seed(seed)
    function, make_inputs = GROUPS[name]
    inputs = make_inputs()
    program, operators = portable(function, inputs, preserve=False)
    return program, inputs, function(*inputs), operators
