"""Dynamic sizes, at each bound and between; and element types, mixed, rare and complex, of tensors of any shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from verify.sound.making import Function, Program, made, settings, sound


def _rows(count: int) -> tuple[Any, ...]:
    return (torch.randn(count, 12),)


def _sequence(count: int) -> tuple[Any, ...]:
    return (torch.randn(2, count, 16),)


def _image(count: int) -> tuple[Any, ...]:
    return (torch.randn(1, 3, 8 + count, 9 + count),)


def _pair(count: int) -> tuple[Any, ...]:
    return torch.randn(count, 12), torch.randn(count, 1)


def _numbers(count: int) -> tuple[Any, ...]:
    return (torch.randint(0, 40, (2, count)),)


_FIRST = ({0: Dim("n", min=1, max=9)},)
_SECOND = ({1: Dim("n", min=1, max=9)},)
_BOTH = ({2: Dim("h", min=9, max=17), 3: Dim("w", min=10, max=18)},)
_TWO = (*_FIRST, *_FIRST)
"""The same size of both."""


def _heads(m: Any, x: Any) -> Any:
    batch, count, width = x.shape
    q, k, v = (one(x).view(batch, count, 4, width // 4).transpose(1, 2) for one in (m.q, m.k, m.v))
    weights = torch.softmax(q @ k.transpose(2, 3) / 2, -1)
    return m.out((weights @ v).transpose(1, 2).reshape(batch, count, width))


def _causal(m: Any, x: Any) -> Any:
    count = x.shape[1]
    scores = x @ x.transpose(1, 2)
    hidden = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)
    return torch.softmax(scores.masked_fill(hidden, -1e9), -1) @ x


def _rotated(m: Any, x: Any) -> Any:
    angles = torch.arange(x.shape[1])[:, None] * m.speeds
    even, odd = x[..., ::2], x[..., 1::2]
    turned = torch.stack([even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1)
    return turned.flatten(2)


def _channels(m: Any, x: Any) -> Any:
    return m.conv(x.to(memory_format=torch.channels_last)).mean((2, 3))


def _mixer() -> Any:
    return made(_heads, **{name: nn.Linear(16, 16) for name in ("q", "k", "v", "out")})


_KINDS: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]], Any]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 3)), _rows, _FIRST),
    "softmax": (lambda: nn.Sequential(nn.Linear(12, 7), nn.Softmax(-1)), _rows, _FIRST),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 12)), _rows, _FIRST),
    "view": (lambda: made(lambda m, x: x.view(-1, 3).exp().view(-1, 6).sum(1)), _rows, _FIRST),
    "views-of-a-line": (
        lambda: made(lambda m, x: m.line(x).view(x.shape[0], 4, 3).cumsum(1).view(-1, 12), line=nn.Linear(12, 12)),
        _rows,
        _FIRST,
    ),
    "view-of-an-input": (lambda: made(lambda m, x: (x.view(-1, 4), x.view(-1).sin())), _rows, _FIRST),
    "view-as-a-result": (lambda: made(lambda m, x: (x * 2).view(-1, 4)), _rows, _FIRST),
    "unsqueezed": (lambda: made(lambda m, x: x.unsqueeze(0).unsqueeze(-1).squeeze(0) + 1), _rows, _FIRST),
    "flattened": (lambda: made(lambda m, x: (x + 1).flatten() * 2), _rows, _FIRST),
    "cat": (lambda: made(lambda m, x: torch.cat([x, x * 2, x[:1]]).mean(0)), _rows, _FIRST),
    "slices": (lambda: made(lambda m, x: (x[-1:], x[:, 2:9:3], x[:1] * 2)), _rows, _FIRST),
    "expanded": (lambda: made(lambda m, x: x.mean(1, keepdim=True).expand(-1, 5) + 1), _rows, _FIRST),
    "arange": (lambda: made(lambda m, x: torch.arange(x.shape[0])[:, None] + x), _rows, _FIRST),
    "full": (lambda: made(lambda m, x: x + torch.full((x.shape[0], 1), 2.0)), _rows, _FIRST),
    "count": (lambda: made(lambda m, x: x.sum(0) / x.shape[0]), _rows, _FIRST),
    "sorted": (lambda: made(lambda m, x: (x.argmax(1), x.max(0).values, torch.topk(x, 3, 1).values)), _rows, _FIRST),
    "padded": (lambda: made(lambda m, x: functional.pad(x, (1, 2), value=3.0)), _rows, _FIRST),
    "repeated": (lambda: made(lambda m, x: x.repeat(2, 1).roll(1, 0)), _rows, _FIRST),
    "matrix": (lambda: made(lambda m, x: x @ x.T), _rows, _FIRST),
    "two-inputs": (lambda: made(lambda m, x, y: x * y + y), _pair, _TWO),
    "attention": (_mixer, _sequence, _SECOND),
    "causal": (lambda: made(_causal), _sequence, _SECOND),
    "rotated": (lambda: made(_rotated, speeds=torch.linspace(0.1, 1, 8)), _sequence, _SECOND),
    "multihead": (
        lambda: made(lambda m, x: m.heads(x, x, x)[0], heads=nn.MultiheadAttention(16, 2, batch_first=True)),
        _sequence,
        _SECOND,
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 4)), _numbers, _SECOND),
    "conv1d": (
        lambda: made(lambda m, x: m.conv(x.transpose(1, 2)), conv=nn.Conv1d(16, 4, 3, padding=1)), _sequence, _SECOND
    ),
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU6(), nn.Conv2d(4, 2, 1)), _image, _BOTH),
    "stride": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Hardswish()), _image, _BOTH),
    "pooled": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), _image, _BOTH
    ),
    "max-pooled": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2)), _image, _BOTH),
    "larger": (lambda: made(lambda m, x: functional.interpolate(x, scale_factor=2.0)), _image, _BOTH),
    "channels": (lambda: made(_channels, conv=nn.Conv2d(3, 4, 3)), _image, _BOTH),
}  # fmt: skip
_ONE_WAY = ("larger",)
"""Only by portable kernels."""


def _program(kind: str, *, delegate: bool = False, planned: bool = True, fewest: int = 1) -> Program:
    make, inputs, bounds = _KINDS[kind]
    if fewest == 0:  # no row is a size, too
        bounds = ({0: Dim("n", min=0, max=9)},)
    module, config = make().eval().requires_grad_(False), settings(inputs=planned, outputs=planned)
    given = (inputs(count) for count in (5, fewest, 9))  # an export with five rows, then the bounds
    return sound(module, *given, sizes=bounds, delegate=delegate, config=config)


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"{kind}-portable": partial(_program, kind) for kind in _KINDS},
    **{f"{kind}-delegated": partial(_program, kind, delegate=True) for kind in _KINDS if kind not in _ONE_WAY},
    **{
        f"{kind}-unplanned": partial(_program, kind, planned=False)
        for kind in ("view", "views-of-a-line", "view-of-an-input", "view-as-a-result", "flattened", "cat", "attention")
    },
    **{f"{kind}-down-to-none": partial(_program, kind, fewest=0) for kind in ("linear", "view", "cat", "matrix")},
}


_TYPES = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "brain": torch.bfloat16,
    "byte": torch.uint8, "char": torch.int8, "short": torch.int16, "int": torch.int32, "long": torch.int64,
    "bool": torch.bool,
}  # fmt: skip


def _draw(dtype: torch.dtype, *sizes: int) -> Any:
    if dtype.is_complex or dtype.is_floating_point:
        return torch.randn(*sizes, dtype=torch.float32 if not dtype.is_complex else dtype).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 50, sizes).to(dtype)


def _arithmetic(m: Any, x: Any, y: Any) -> Any:
    return x + y, x * y, torch.where(x > y, x, y), x == y, torch.cat([x, y]), x[:, 1:].contiguous()


def _layer(m: Any, x: Any) -> Any:
    return torch.softmax(m.line(x), -1), m.line(x).relu().sum(0)


def _reduced(m: Any, x: Any) -> Any:
    return x.sum(1), x.amax(0), x.argmin(1), x.any(1), x.cumsum(0)


def _moved(m: Any, x: Any) -> Any:
    return x.T.contiguous(), x.flip(0), x.repeat(2, 2), x.view(-1), torch.stack([x, x]), x.unsqueeze(1).expand(2, 3, 3)


def _arithmetic_program(dtype: torch.dtype) -> Program:
    return sound(made(_arithmetic), (_draw(dtype, 3, 4), _draw(dtype, 3, 4)))


def _layer_program(dtype: torch.dtype, *, delegate: bool) -> Program:
    return sound(made(_layer, line=nn.Linear(6, 4)).to(dtype), (_draw(dtype, 3, 6),), delegate=delegate)


_USES: dict[str, tuple[Function, Callable[[], Sequence[Any]]]] = {
    # Mixed.
    "int-and-float": (lambda m, x, y: (x + y, x / y, y * 2), lambda: (_draw(torch.int32, 2, 3), torch.rand(2, 3) + 1)),
    "half-and-float": (lambda m, x, y: (x + y, x * y), lambda: (_draw(torch.float16, 2, 3), torch.randn(2, 3))),
    "bool-and-int": (lambda m, x, y: (x + y, x & (y > 3)), lambda: (torch.tensor([True, False]), torch.tensor([2, 5]))),
    "byte-picture": (lambda m, x: (x.float() / 255 - 0.5).mean((2, 3)), lambda: (_draw(torch.uint8, 1, 3, 4, 5),)),
    "double-from-int": (lambda m, x: x.double().sqrt(), lambda: (_draw(torch.int64, 5),)),
    "to-and-fro": (lambda m, x: x.half().float().to(torch.int8).bool(), lambda: (torch.randn(3, 4) * 20,)),
    "int-divided": (lambda m, x: (x / 3, x // 3, x % 3), lambda: (_draw(torch.int32, 6),)),
    "long-rows": (lambda m, x, y: x[y] + x.index_select(0, y), lambda: (torch.randn(5, 2), torch.tensor([4, 0, 4]))),
    "int-rows": (lambda m, x, y: torch.embedding(x, y), lambda: (torch.randn(5, 2), torch.tensor([[4], [0]]).int())),
    "compared": (lambda m, x, y: (x < y, x != 2, torch.logical_xor(x > 0, y > 0)), lambda: torch.randn(2, 4)),
    "bits": (lambda m, x, y: (x & y, x | 3, x ^ y, ~x, x << 1), lambda: (_draw(torch.int32, 4), _draw(torch.int32, 4))),
    "infinite": (
        lambda m, x: (x.exp(), x / 0, torch.isnan(x), x.nan_to_num(), x.clamp(-1, 1), x.amax()),
        lambda: (torch.tensor([float("inf"), -float("inf"), 0.0, 100.0, -3.0]),),
    ),
    # Complex.
    "spectrum": (lambda m, x: torch.fft.rfft(x).abs(), lambda: (torch.randn(2, 16),)),
    "spectrum-itself": (lambda m, x: torch.fft.rfft(x), lambda: (torch.randn(2, 16),)),
    "spectrum-in-parts": (lambda m, x: torch.view_as_real(torch.fft.rfft(x)), lambda: (torch.randn(2, 16),)),
    "there-and-back": (lambda m, x: torch.fft.irfft(torch.fft.rfft(x)), lambda: (torch.randn(2, 16),)),
    "complex-sum": (lambda m, x, y: x + y, lambda: (_draw(torch.complex64, 2, 3), _draw(torch.complex64, 2, 3))),
    "complex-product": (lambda m, x, y: x * y, lambda: (_draw(torch.complex64, 2, 3), _draw(torch.complex64, 2, 3))),
    "complex-matrix": (
        lambda m, x, y: torch.bmm(x, y), lambda: (_draw(torch.complex64, 2, 3, 4), _draw(torch.complex64, 2, 4, 2))
    ),
    "complex-moved": (lambda m, x: (x.view(-1), x[1:], torch.cat([x, x])), lambda: (_draw(torch.complex64, 3, 2),)),
    "complex-passed": (lambda m, x, y: (x, y + 1), lambda: (_draw(torch.complex64, 3, 2), torch.randn(2))),
    "complex-double": (lambda m, x, y: x * y, lambda: (_draw(torch.complex128, 3), _draw(torch.complex128, 3))),
    # Sizes.
    "no-row": (lambda m, x: (x + 1, x.sum(0), x.view(-1), torch.cat([x, m.table])), lambda: (torch.randn(0, 3),)),
    "no-column": (lambda m, x: (x.sum(1), x.T.contiguous(), x * 2), lambda: (torch.randn(3, 0),)),
    "nothing-times-something": (lambda m, x, y: x @ y, lambda: (torch.randn(2, 0), torch.randn(0, 3))),
    "no-index": (lambda m, x, y: x[y], lambda: (torch.randn(4, 3), torch.zeros(0, dtype=torch.int64))),
    "no-part": (lambda m, x: (x[2:2] + 1, x[:0].mul(2)), lambda: (torch.randn(4, 3),)),
    "no-dimension": (lambda m, x, y: (x + y, x.view(1), (x * y).expand(2, 2)), lambda: torch.tensor([2.0, 3.0])),
    "one-element": (lambda m, x: (x.squeeze(), x.sum(), x.view(1, 1)), lambda: (torch.randn(1, 1, 1),)),
    "eight-dimensions": (
        lambda m, x: (x.permute(7, 6, 5, 4, 3, 2, 1, 0).contiguous(), x.sum((0, 2)), x.view(-1)),
        lambda: (torch.randn(1, 2, 1, 3, 1, 2, 1, 2),),
    ),
    "spread": (lambda m, x, y: x + y, lambda: (torch.randn(3, 1, 2), torch.randn(4, 1))),
    "wide": (lambda m, x: x.sum(1), lambda: (torch.randn(2, 70000),)),
}  # fmt: skip


def _use(kind: str) -> Program:
    function, given = _USES[kind]
    return sound(made(function, table=torch.ones(2, 3)), tuple(one.clone() for one in given()))


TYPES: dict[str, Callable[[], Program]] = {
    **{f"arithmetic-{name}": partial(_arithmetic_program, dtype) for name, dtype in _TYPES.items() if name != "bool"},
    **{
        f"moved-{name}": (lambda dtype=dtype: sound(made(_moved), (_draw(dtype, 3, 3)[:2],)))  # type: ignore[misc]
        for name, dtype in _TYPES.items()
    },
    **{
        f"reduced-{name}": (lambda dtype=dtype: sound(made(_reduced), (_draw(dtype, 3, 4),)))  # type: ignore[misc]
        for name, dtype in _TYPES.items()
        if name != "bool"
    },
    **{
        f"layer-{name}{'-delegated' if delegate else ''}": partial(_layer_program, _TYPES[name], delegate=delegate)
        for name in ("float", "double", "half", "brain")
        for delegate in (False, True)
    },
    **{kind: partial(_use, kind) for kind in _USES},
}
