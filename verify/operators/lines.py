"""Cases of operators that reduce, sort, normalise or look up."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from verify.operators import draws
from verify.operators.draws import ALL, FLOATS, INTEGERS, SIZES, Call, Draw, Maker, dim_of, dtype, of_one, shape, tensor

aten = torch.ops.aten
_NUMBERS = (*FLOATS, *INTEGERS[:4])
_HALFLESS = (torch.float32, torch.float64)


def _over_dim(op: Any, of: tuple[torch.dtype, ...], *after: Any, high: float = 3) -> Maker:
    return of_one(op, lambda draw, x: (dim_of(draw, x), *after), of, edges=(-high, high))


def _over_dims(op: Any, of: tuple[torch.dtype, ...], **settings: Any) -> Maker:
    def over(x: torch.Tensor, dims: list[int], keep: bool) -> Any:
        return op(x, dims, keepdim=keep, **settings)

    return of_one(over, lambda draw, x: (draws.dims_of(draw, x), draw(st.booleans())), of)


def _variance(draw: Draw) -> Call:
    x = tensor(draw, (3, draw(st.integers(2, 40))), dtype(draw, _HALFLESS))
    return lambda x: aten.var.dim(x, [1], True, keepdim=True), (x,)


def _distinct(draw: Draw) -> torch.Tensor:
    """No number twice along a line: which of two equal ones comes first is nobody's promise."""
    rows, width = draw(SIZES), draw(st.integers(2, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    lines = [torch.randperm(width, generator=generator) for _ in range(rows)]
    return (torch.stack(lines) - width // 2).to(dtype(draw, (torch.float32, torch.int64, torch.float16)))


def _topk(draw: Draw) -> Call:
    x, largest = _distinct(draw), draw(st.booleans())
    k = draw(st.integers(1, x.shape[1]))
    return lambda x: aten.topk.default(x, k, 1, largest), (x,)


def _sort(draw: Draw) -> Call:
    descending = draw(st.booleans())
    return lambda x: aten.sort.default(x, 1, descending), (_distinct(draw),)


def _rows(draw: Draw, x: torch.Tensor, dim: int, *, least: int = 0) -> torch.Tensor:
    return tensor(draw, (draw(SIZES),), torch.int64, least, x.shape[dim] - 1)


def _index_select(draw: Draw) -> Call:
    x = tensor(draw, shape(draw), dtype(draw, ALL))
    dim = dim_of(draw, x)
    return lambda x, rows: aten.index_select.default(x, dim, rows), (x, _rows(draw, x, dim))


def _embedding(draw: Draw) -> Call:
    table = tensor(draw, (draw(st.integers(2, 20)), draw(SIZES)), dtype(draw, FLOATS))
    return aten.embedding.default, (table, tensor(draw, shape(draw, 1, 2), torch.int64, 0, table.shape[0] - 1))


def _at_indices(op: Any, of: tuple[torch.dtype, ...], *, source: bool = False, number: Any = None) -> Maker:
    """Along one dimension, at places that are different along a line."""

    def make(draw: Draw) -> Call:
        x = tensor(draw, shape(draw, 2, 3), dtype(draw, of))
        dim = dim_of(draw, x)
        noise = tensor(draw, x.shape, torch.float64)
        indices = noise.argsort(dim).narrow(dim, 0, draw(st.integers(1, x.shape[dim])))
        if source:
            return lambda x, p, s: op(x, dim, p, s), (x, indices, tensor(draw, indices.shape, x.dtype))
        if number is not None:
            return lambda x, p: op(x, dim, p, number), (x, indices)
        return lambda x, p: op(x, dim, p), (x, indices)

    return make


def _index(draw: Draw) -> Call:
    x = tensor(draw, shape(draw, 2, 4), dtype(draw, ALL))
    way = draw(st.integers(0, 3))
    if way < 2:
        dim = way
        only = tensor(draw, shape(draw, 1, 2), torch.int64, -x.shape[dim], x.shape[dim] - 1)
        return lambda x, a: aten.index.Tensor(x, [None] * dim + [a]), (x, only)
    first = _rows(draw, x, 0, least=-x.shape[0])
    second = tensor(draw, first.shape, torch.int64, 0, x.shape[1] - 1)
    if way == 2:
        return lambda x, a, b: aten.index.Tensor(x, [a[:, None], b]), (x, first, second)
    return lambda x, a, b: aten.index.Tensor(x, [a, b]), (x, first, second)


def _index_put(draw: Draw) -> Call:
    x = tensor(draw, shape(draw, 2, 3), dtype(draw, (*FLOATS, *INTEGERS)))
    add = draw(st.booleans()) and x.dtype != torch.float16
    rows = torch.randperm(x.shape[0])[: draw(st.integers(1, x.shape[0]))]
    values = tensor(draw, (len(rows), *x.shape[1:]), x.dtype)
    return lambda x, rows, values: aten.index_put.default(x, [rows], values, add), (x, rows, values)


def _masked_scatter(draw: Draw) -> Call:
    x = tensor(draw, shape(draw), dtype(draw, ALL))
    return aten.masked_scatter.default, (x, tensor(draw, x.shape, torch.bool), tensor(draw, x.shape, x.dtype))


def _layer_norm(draw: Draw) -> Call:
    x = tensor(draw, (draw(SIZES), draw(SIZES), draw(st.integers(2, 40))), torch.float32)
    width = x.shape[-1]
    weight, bias = tensor(draw, (width,), x.dtype), tensor(draw, (width,), x.dtype)
    return lambda x, w, b: aten.native_layer_norm.default(x, [width], w, b, 1e-5)[0], (x, weight, bias)


def _group_norm(draw: Draw) -> Call:
    groups, each, area = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 20))
    x = tensor(draw, (draw(SIZES), groups * each, area), torch.float32)
    n, c, _ = x.shape
    w, b = tensor(draw, (c,), x.dtype), tensor(draw, (c,), x.dtype)
    return lambda x, w, b: aten.native_group_norm.default(x, w, b, n, c, area, groups, 1e-4)[0], (x, w, b)


def _batch_norm(op: Any, kind: str) -> Maker:
    def make(draw: Draw) -> Call:
        x = tensor(draw, (draw(st.integers(2, 4)), draw(SIZES), draw(st.integers(2, 5)), 3), torch.float32)
        c = x.shape[1]
        w, b, mean = (tensor(draw, (c,), x.dtype) for _ in range(3))
        variance = tensor(draw, (c,), x.dtype, 0.5, 2)
        if kind == "learned":
            return lambda x, w, b, m, v: op(x, w, b, m, v, 0.1, 1e-3)[0], (x, w, b, mean, variance)
        return lambda x, w, b: op(x, w, b, True, 0.1, 1e-3), (x, w, b)

    return make


def _glu(draw: Draw) -> Call:
    x = tensor(draw, (draw(SIZES), 2 * draw(SIZES)), dtype(draw, FLOATS))
    return lambda x: aten.glu.default(x, 1), (x,)


def _pdist(draw: Draw) -> Call:
    p = draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, float("inf")]))
    return lambda x: aten._pdist_forward.default(x, p), (tensor(draw, (draw(SIZES), 4), dtype(draw, _HALFLESS)),)


def _cdist(draw: Draw) -> Call:
    p = draw(st.sampled_from([0.0, 1.0, 2.0, 1.5, float("inf")]))
    a = tensor(draw, (draw(st.sampled_from([1, 2])), draw(SIZES), 4), torch.float32)
    return lambda a, b: aten._cdist_forward.default(a, b, p, 2), (a, tensor(draw, (2, draw(SIZES), 4), a.dtype))


def _product(op: Any, *shapes: str, **settings: Any) -> Maker:
    """Matrices whose sizes are named by letters."""

    def make(draw: Draw) -> Call:
        sizes = {letter: draw(st.integers(1, 9)) for letter in "bm"}
        # Around the tiles that kernels work in; and no element at all to sum up.
        sizes |= {"k": draw(st.sampled_from([0, 1, 7, 33, 40, 400])), "n": draw(st.sampled_from([1, 5, 7, 13, 19]))}
        kind = dtype(draw, (torch.float32, torch.float64))
        given = tuple(tensor(draw, [sizes[letter] for letter in word], kind, -0.5, 0.5) for word in shapes)
        return lambda *given: op(*given, **settings), given

    return make


MAKERS: dict[str, Maker] = {
    "aten::amax.out": _over_dims(aten.amax.default, ALL),
    "aten::amin.out": _over_dims(aten.amin.default, ALL),
    "aten::any.out": _over_dim(aten.any.dim, ALL),
    "aten::any.dims_out": _over_dims(aten.any.dims, ALL),
    "aten::any.all_out": of_one(aten.any.default, of=ALL),
    "aten::argmax.out": _over_dim(aten.argmax.default, (torch.float32, torch.float64)),
    "aten::argmin.out": _over_dim(aten.argmin.default, (torch.float32, torch.float64)),
    "aten::cumsum.out": _over_dim(aten.cumsum.default, (torch.float32, torch.float64, *INTEGERS)),
    "aten::max.dim_max": _over_dim(aten.max.dim, (torch.float32, torch.float64), True),
    "aten::min.dim_min": _over_dim(aten.min.dim, (torch.float32, torch.float64)),
    "aten::max.unary_out": of_one(aten.max.default, of=_NUMBERS),
    "aten::min.unary_out": of_one(aten.min.default, of=_NUMBERS),
    "aten::mean.out": _over_dims(aten.mean.dim, FLOATS),
    "aten::mean.dtype_out": of_one(aten.mean.default, of=FLOATS),
    "aten::prod.int_out": _over_dim(aten.prod.dim_int, (torch.float64, torch.int64), high=1.2),
    "aten::prod.out": of_one(aten.prod.default, of=(torch.float64,), edges=(0.9, 1.1)),
    "aten::sum.IntList_out": _over_dims(aten.sum.dim_IntList, _NUMBERS),
    "aten::var.out": _variance,
    "aten::var.correction_out": _over_dims(aten.var.correction, _HALFLESS, correction=0),
    "aten::var_mean.correction_out": _over_dims(aten.var_mean.correction, _HALFLESS, correction=0),
    "aten::_softmax.out": _over_dim(aten._softmax.default, FLOATS, False, high=8),
    "aten::_log_softmax.out": _over_dim(aten._log_softmax.default, FLOATS, False, high=8),
    "aten::topk.values": _topk,
    "aten::sort.values": _sort,
    "aten::embedding.out": _embedding,
    "aten::gather.out": _at_indices(aten.gather.default, ALL),
    "aten::scatter.src_out": _at_indices(aten.scatter.src, ALL, source=True),
    "aten::scatter.value_out": _at_indices(aten.scatter.value, _NUMBERS, number=2),
    "aten::scatter_add.out": _at_indices(aten.scatter_add.default, _NUMBERS, source=True),
    "aten::index_select.out": _index_select,
    "aten::index.Tensor_out": _index,
    "aten::index_put.out": _index_put,
    "aten::masked_scatter.out": _masked_scatter,
    "aten::native_layer_norm.out": _layer_norm,
    "aten::native_group_norm.out": _group_norm,
    "aten::_native_batch_norm_legit_no_training.out": _batch_norm(
        aten._native_batch_norm_legit_no_training.default, "learned"
    ),
    "aten::_native_batch_norm_legit.no_stats_out": _batch_norm(aten._native_batch_norm_legit.no_stats, "own"),
    "aten::glu.out": _glu,
    "aten::_pdist_forward.out": _pdist,
    "aten::_cdist_forward.out": _cdist,
    "aten::mm.out": _product(aten.mm.default, "mk", "kn"),
    "aten::bmm.out": _product(aten.bmm.default, "bmk", "bkn"),
    "aten::addmm.out": _product(aten.addmm.default, "n", "mk", "kn", beta=0.5, alpha=2),
    "aten::linear.out": _product(aten.linear.default, "bmk", "nk", "n"),
}
