"""Cases of operators that move, make or put together elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from verify.operators.draws import ALL, FLOATS, SIZES, Call, Draw, Maker, dim_of, dims_of, dtype, of_one, shape, tensor

aten = torch.ops.aten


def _any(draw: Draw, least: int = 1, most: int = 4) -> torch.Tensor:
    return tensor(draw, shape(draw, least, most), dtype(draw, ALL))


def _squeeze(op: Any, *, one: bool) -> Maker:
    def make(draw: Draw) -> Call:
        x = _any(draw, 1, 3)
        dim = draw(st.integers(0, x.dim()))
        return lambda x: op(x, dim if one else [dim]), (x.unsqueeze(dim),)

    return make


def _expand(draw: Draw) -> Call:
    x = _any(draw, 1, 3).unsqueeze(0)
    sizes = [draw(SIZES), draw(SIZES), *([-1] * (x.dim() - 1))]
    return lambda x: aten.expand_copy.default(x, sizes), (x,)


def _select(draw: Draw, x: torch.Tensor) -> tuple[int, int]:
    dim = dim_of(draw, x)
    return dim, draw(st.integers(-x.shape[dim], x.shape[dim] - 1))


def _slice(draw: Draw, x: torch.Tensor) -> tuple[int, ...]:
    dim = dim_of(draw, x)
    start, step = draw(st.integers(0, x.shape[dim] - 1)), draw(st.integers(1, 3))
    return dim, start, draw(st.integers(start + 1, x.shape[dim] + 2)), step


def _narrow(draw: Draw, x: torch.Tensor) -> tuple[int, ...]:
    dim = dim_of(draw, x)
    start = draw(st.integers(0, x.shape[dim] - 1))
    return dim, start, draw(st.integers(1, x.shape[dim] - start))


def _unfold(draw: Draw, x: torch.Tensor) -> tuple[int, ...]:
    dim = dim_of(draw, x)
    return dim, draw(st.integers(1, x.shape[dim])), draw(st.integers(1, 3))


def _strided(draw: Draw) -> Call:
    rows, columns = draw(SIZES), draw(SIZES)
    x = tensor(draw, (rows * columns + 3,), dtype(draw, ALL))
    offset = draw(st.integers(0, 3))
    return lambda x: aten.as_strided_copy.default(x, [columns, rows], [1, columns], offset), (x,)


def _to_copy(draw: Draw) -> Call:
    kind = dtype(draw, (torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool))
    x = tensor(draw, shape(draw), dtype(draw, ALL), 0, 100)
    return lambda x: aten._to_copy.default(x, dtype=kind), (x,)


def _copy(draw: Draw) -> Call:
    x = _any(draw)
    return aten.copy.default, (x, tensor(draw, x.shape[-1:], dtype(draw, FLOATS), 0, 3))


def _several(draw: Draw, dim: int) -> tuple[torch.Tensor, ...]:
    """Tensors that differ in one dimension."""
    first = _any(draw, 2, 3)
    sizes = [list(first.shape) for _ in range(draw(st.integers(1, 3)))]
    for one in sizes:
        one[dim] = draw(SIZES)
    return (first, *(tensor(draw, one, first.dtype) for one in sizes))


def _cat(draw: Draw) -> Call:
    dim = draw(st.integers(-2, 1))
    return lambda *parts: aten.cat.default(list(parts), dim), _several(draw, dim)


def _stack(draw: Draw) -> Call:
    x = _any(draw, 1, 3)
    dim = draw(st.integers(-x.dim() - 1, x.dim()))
    return lambda a, b: aten.stack.default([a, b], dim), (x, tensor(draw, x.shape, x.dtype))


def _split(draw: Draw, x: torch.Tensor) -> tuple[int, int]:
    dim, size = dim_of(draw, x), draw(SIZES)
    return max(size, x.shape[dim] // 4), dim


def _split_sizes(draw: Draw) -> Call:
    sizes = [draw(SIZES) for _ in range(3)]
    x = tensor(draw, (2, sum(sizes), 3), dtype(draw, ALL))
    return lambda x: aten.split_with_sizes_copy.default(x, sizes, 1), (x,)


def _times(draw: Draw, x: torch.Tensor) -> tuple[list[int]]:
    return ([draw(st.integers(1, 3)) for _ in range(x.dim() + draw(st.integers(0, 1)))],)


def _sides(draw: Draw, x: torch.Tensor) -> tuple[list[int], int]:
    sides = [draw(st.integers(0, 3)) for _ in range(2 * draw(st.integers(1, 2)))]
    return [draw(st.integers(-x.shape[-1] + 1, 3)), *sides[1:]], 1


def _pixels(op: Any, *, more: bool) -> Maker:
    def make(draw: Draw) -> Call:
        n, c, h, w, factor = (draw(st.integers(1, 3)) for _ in range(5))
        sizes = (n, c * factor**2, h, w) if more else (n, c, h * factor, w * factor)
        return lambda x: op(x, factor), (tensor(draw, sizes, dtype(draw, FLOATS)),)

    return make


def _edge(op: Any, dims: int) -> Maker:
    """Padding with the image's own elements, in ``dims`` dimensions."""

    def make(draw: Draw) -> Call:
        sizes = [2, 3, *(draw(st.integers(3, 6)) for _ in range(dims))]
        sides = [draw(st.integers(0, 2)) for _ in range(2 * dims)]
        return lambda x: op(x, sides), (tensor(draw, sizes, dtype(draw, FLOATS[:2])),)

    return make


def _scatter(op: Any, *, whole: bool) -> Maker:
    """A part of a tensor replaced: all from a place on, or one place."""

    def make(draw: Draw) -> Call:
        x = _any(draw, 2)
        dim = draw(st.integers(0, x.dim() - 1))
        start = draw(st.integers(0, x.shape[dim] - 1))
        part = x.narrow(dim, start, x.shape[dim] - start) if whole else x.select(dim, start)
        end = (x.shape[dim], 1) if whole else ()
        return lambda x, part: op(x, part, dim, start, *end), (x, tensor(draw, part.shape, x.dtype))

    return make


def _made(function: Callable[..., Any]) -> Maker:
    """Made of numbers alone; the tensor beside it is only returned."""

    def make(draw: Draw) -> Call:
        a, b = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        return lambda x: (x + 1, function(a, b)), (tensor(draw, (2,), torch.float32),)

    return make


MAKERS: dict[str, Maker] = {
    "aten::view_copy.out": of_one(
        aten.view_copy.default,
        lambda draw, x: (draw(st.sampled_from([[-1], [x.shape[0], -1], [-1, x.shape[-1]], [x.numel(), 1]])),),
        dims=(2, 4),
    ),
    "aten::unsqueeze_copy.out": of_one(
        aten.unsqueeze_copy.default, lambda draw, x: (draw(st.integers(-x.dim() - 1, x.dim())),)
    ),
    "aten::squeeze_copy.dim_out": _squeeze(aten.squeeze_copy.dim, one=True),
    "aten::squeeze_copy.dims_out": _squeeze(aten.squeeze_copy.dims, one=False),
    "aten::permute_copy.out": of_one(
        aten.permute_copy.default, lambda draw, x: (draw(st.permutations(range(x.dim()))),)
    ),
    "aten::transpose_copy.int_out": of_one(aten.transpose_copy.int, lambda draw, x: (dim_of(draw, x), dim_of(draw, x))),
    "aten::t_copy.out": of_one(aten.t_copy.default, dims=(2, 2)),
    "aten::expand_copy.out": _expand,
    "aten::select_copy.int_out": of_one(aten.select_copy.int, _select),
    "aten::slice_copy.Tensor_out": of_one(aten.slice_copy.Tensor, _slice),
    "aten::narrow_copy.out": of_one(aten.narrow_copy.default, _narrow),
    "aten::flip.out": of_one(aten.flip.default, lambda draw, x: (dims_of(draw, x),)),
    "aten::diagonal_copy.out": of_one(
        aten.diagonal_copy.default,
        lambda draw, x: (draw(st.integers(-x.shape[0] + 1, x.shape[1] - 1)), 0, 1),
        dims=(2, 4),
    ),
    "aten::unfold_copy.out": of_one(aten.unfold_copy.default, _unfold),
    "aten::as_strided_copy.out": _strided,
    "dim_order_ops::_to_dim_order_copy.out": _to_copy,
    "dim_order_ops::_clone_dim_order.out": of_one(aten.clone.default),
    "aten::alias_copy.out": of_one(aten.alias_copy.default),
    "aten::detach_copy.out": of_one(aten.detach_copy.default),
    "aten::copy.out": _copy,
    "aten::cat.out": _cat,
    "aten::stack.out": _stack,
    "aten::split_copy.Tensor_out": of_one(aten.split_copy.Tensor, _split),
    "aten::split_with_sizes_copy.out": _split_sizes,
    "aten::unbind_copy.int_out": of_one(aten.unbind_copy.int, lambda draw, x: (dim_of(draw, x),), dims=(3, 3)),
    "aten::repeat.out": of_one(aten.repeat.default, _times, dims=(1, 2)),
    "aten::roll.out": of_one(
        aten.roll.default, lambda draw, x: ([draw(st.integers(-4, 4))], [draw(st.integers(0, x.dim() - 1))])
    ),
    "aten::constant_pad_nd.out": of_one(aten.constant_pad_nd.default, _sides, dims=(2, 4)),
    "aten::pixel_shuffle.out": _pixels(aten.pixel_shuffle.default, more=True),
    "aten::pixel_unshuffle.out": _pixels(aten.pixel_unshuffle.default, more=False),
    "aten::tril.out": of_one(aten.tril.default, lambda draw, x: (draw(st.integers(-3, 3)),), dims=(2, 4)),
    "aten::full_like.out": of_one(aten.full_like.default, lambda draw, x: (draw(st.integers(0, 9)),)),
    "aten::select_scatter.out": _scatter(aten.select_scatter.default, whole=False),
    "aten::slice_scatter.out": _scatter(aten.slice_scatter.default, whole=True),
    "aten::arange.start_out": _made(lambda a, b: aten.arange.start_step(a, 3 * a + b, b)),
    "aten::full.out": _made(lambda a, b: aten.full.default([a, b], 7)),
    "aten::ones.out": _made(lambda a, b: aten.ones.default([a, b])),
    "aten::zeros.out": _made(lambda a, b: aten.zeros.default([a, b])),
    "aten::scalar_tensor.out": _made(lambda a, _: aten.scalar_tensor.default(a)),
}
for _way in ("reflection", "replication"):
    for _dims in (1, 2, 3):
        _name = f"{_way}_pad{_dims}d"
        MAKERS[f"aten::{_name}.out"] = _edge(getattr(aten, _name).default, _dims)
