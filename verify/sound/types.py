"""Element types, mixed and rare ones; complex numbers; tensors without elements, without dimensions, with many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from verify.sound.making import Function, Program, made, sound

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


_KINDS: dict[str, tuple[Function, Callable[[], Sequence[Any]]]] = {
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


def _program(kind: str) -> Program:
    function, given = _KINDS[kind]
    return sound(made(function, table=torch.ones(2, 3)), tuple(one.clone() for one in given()))


PROGRAMS: dict[str, Callable[[], Program]] = {
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
    **{kind: partial(_program, kind) for kind in _KINDS},
}
