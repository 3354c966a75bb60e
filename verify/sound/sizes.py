"""Dynamic sizes, at each bound and between: one of several, in views, in numbers, with no element at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from verify.sound.making import Program, made, settings, sound

_ROWS = (5, 1, 9)
"""An export with five rows, then the bounds."""


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
    lines = {name: nn.Linear(16, 16) for name in ("q", "k", "v", "out")}
    return made(_heads, **lines)


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
    "channels": (
        lambda: made(_channels, conv=nn.Conv2d(3, 4, 3)),
        _image,
        _BOTH,
    ),
}  # fmt: skip
_ONE_WAY = ("larger",)
"""Only by portable kernels."""


def _program(kind: str, *, delegate: bool, config: Callable[[], Any] = lambda: None) -> Program:
    make, inputs, bounds = _KINDS[kind]
    module = make().eval().requires_grad_(False)
    return sound(module, *(inputs(count) for count in _ROWS), sizes=bounds, delegate=delegate, config=config())


def _fewest(kind: str) -> Program:
    """No row is a size, too."""
    make, inputs, _ = _KINDS[kind]
    bounds = ({0: Dim("n", min=0, max=9)},)
    module = make().eval().requires_grad_(False)
    return sound(module, *(inputs(count) for count in (5, 0, 9)), sizes=bounds)


def _unplanned() -> Any:
    return settings(inputs=False, outputs=False)


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"{kind}-portable": partial(_program, kind, delegate=False) for kind in _KINDS},
    **{f"{kind}-delegated": partial(_program, kind, delegate=True) for kind in _KINDS if kind not in _ONE_WAY},
    **{
        f"{kind}-unplanned": partial(_program, kind, delegate=False, config=_unplanned)
        for kind in ("view", "views-of-a-line", "view-of-an-input", "view-as-a-result", "flattened", "cat", "attention")
    },
    **{f"{kind}-down-to-none": partial(_fewest, kind) for kind in ("linear", "view", "cat", "matrix")},
}
