"""Programs that are well-formed and wrong: they lead a kernel out of its memory, or make it take all there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.exir import schema

from verify.operators.written import Constant, Out, ValueRef, Writer

Maker = Callable[[Writer], None]
_LARGEST = 2**31 - 1
_ROWS = 1 << 22
_SIDE = 1 << 13
_MANY = 1 << 29
_INT8, _INT64, _FLOAT64 = torch.int8, torch.int64, torch.float64


def _call(kernel: str, *arguments: Any) -> Maker:
    return lambda writer: writer.call(kernel, *arguments)


def _to(*shape: int, dtype: torch.dtype = torch.float32, bounded: bool = False) -> Out:
    """What a kernel writes."""
    return Out(torch.zeros(shape, dtype=dtype), bounded)


def _index(number: int) -> Constant:
    return Constant(torch.tensor([0, number, 1]))


def _made(writer: Writer, like: torch.Tensor, value: float) -> ValueRef:
    """A tensor that the program itself fills."""
    index = ValueRef(writer.tensor(like))
    writer.call("aten::full.out", list(like.shape), value, index)
    return index


def _unplaced(writer: Writer, like: torch.Tensor) -> ValueRef:
    """A tensor that has no memory, neither planned nor given."""
    index = writer.tensor(like)
    writer.values[index].val.allocation_info = None
    return ValueRef(index)


def _overwrites_its_input(writer: Writer) -> None:
    both = writer.given(torch.ones(64, 3), bounded=True)
    writer.call("aten::mm.out", both, torch.ones(3, 2), both)


def _moved_into_an_input(writer: Writer) -> None:
    """The result is among the inputs once a list has been moved: it would grow while it is read."""
    rows = _made(writer, torch.zeros(_ROWS - 1, 3), 2.0)
    grows = ValueRef(writer.tensor(torch.zeros(_ROWS, 3), bounded=True))
    writer.call("aten::full.out", [1, 3], 1.0, grows)
    first, second = writer._argument([rows]), writer._argument([rows, grows])
    writer.instructions.append(schema.Instruction(schema.MoveCall(move_from=second, move_to=first)))
    writer.call("aten::cat.out", ValueRef(first), 0, grows)


def _indices_that_wrap(writer: Writer) -> None:
    """Indices that broadcast to 2^64 + 418 places."""
    sizes = (15242, 5821, 11683, 26443, 673)
    indices = []
    for dim, size in enumerate(sizes):
        shape = [1] * len(sizes)
        shape[dim] = size
        indices.append(_made(writer, torch.zeros(shape, dtype=torch.int64), 0))
    target = writer.given(torch.ones(1 << 20, 1, 1, 1, 1, 1))
    writer.call("aten::index_put_", target, [None, *indices], torch.ones(1), False, target)


def _pairs_that_wrap(writer: Writer) -> None:
    """So many rows without columns that their pairs are 2^64 n + 361."""
    rows = writer.given(torch.zeros(1, 0, dtype=torch.int8))
    for times in (1707817486, 1189435391):
        more = ValueRef(writer.tensor(torch.zeros(_LARGEST, 0, dtype=torch.int8), bounded=True))
        writer.call("aten::repeat.out", rows, [times, 1], more)
        rows = more
    writer.call("aten::_pdist_forward.out", rows, 2.0, Out(torch.zeros(361)))


def _result_in_an_argument(writer: Writer) -> None:
    given = writer.given(torch.ones(4))
    result = writer.tensor(torch.zeros(4))
    writer.values[result].val.allocation_info.memory_offset_low = 8
    writer.call("aten::relu.out", given, ValueRef(result))


def _results_in_one_another(writer: Writer) -> None:
    given = writer.given(torch.ones(4, 4))
    values, indices = writer.tensor(torch.zeros(4)), writer.tensor(torch.zeros(4, dtype=torch.int64))
    writer.values[indices].val.allocation_info = writer.values[values].val.allocation_info
    writer.call("aten::max.dim_max", given, 1, False, ValueRef(values), ValueRef(indices))


_EDGES = (-128, 127)
_BYTES = "quantized_decomposed::embedding_byte.out"
_TWO = torch.ones(2, dtype=_INT64)

WRONG: dict[str, Maker] = {
    "reads-without-memory": lambda writer: writer.call("aten::relu.out", _unplaced(writer, torch.zeros(4)), _to(4)),
    "writes-without-memory": lambda writer: writer.call(
        "aten::relu.out", torch.ones(4), _unplaced(writer, torch.zeros(4))
    ),
    "views-too-much": _call("executorch_prim::et_view.default", torch.ones(4), [2**16, 2**15], _to(2, 2)),
    "index-type": _call(
        "aten::index.Tensor_out", torch.ones(3, dtype=torch.uint8), [torch.tensor([0, 1, 2])], _to(3, dtype=_INT64)
    ),
    "gather-type": _call("aten::gather.out", torch.ones(3), 0, torch.tensor([0, 1, 2]), False, _to(3, dtype=_FLOAT64)),
    "select-beyond": _call("aten::index_select.out", torch.ones(2, 4), 1, _index(4), _to(2, 3)),
    "select-before": _call("aten::index_select.out", torch.ones(4, 2), 0, _index(-1), _to(3, 2)),
    "index-beyond": _call("aten::index.Tensor_out", torch.ones(4, 2), [_index(4)], _to(3, 2)),
    "index-before": _call("aten::index.Tensor_out", torch.ones(4, 2), [_index(1), _index(-3)], _to(3)),
    "put-beyond": _call("aten::index_put.out", torch.ones(4), [_index(4)], torch.ones(1), False, _to(4)),
    "gather-beyond": _call("aten::gather.out", torch.ones(2), 0, _index(2), False, _to(3)),
    "repeat-overflow": _call("aten::repeat.out", torch.ones(4), [2**62 + 1], _to(4)),
    "stride-overflow": _call("aten::as_strided_copy.out", torch.ones(16), [2] * 4, [_LARGEST] * 4, 0, _to(2, 2, 2, 2)),
    "too-few": _call("aten::add.out", torch.ones(4), torch.ones(4)),
    "unknown-rounding": _call("aten::div.out_mode", torch.ones(4), torch.ones(4), "round", _to(4)),
    "unknown-approximation": _call("aten::gelu.out", torch.ones(4), "cubic", _to(4)),
    "input-as-output": _overwrites_its_input,
    "moved-into-an-input": _moved_into_an_input,
    "into-a-constant": _call(
        "quantized_decomposed::choose_qparams.Tensor_out", torch.ones(4), *_EDGES, 1e-6, 1,
        Constant(torch.ones(1, dtype=_FLOAT64)), _to(1, dtype=_INT64),
    ),
    "scales-without-any": _call(
        _BYTES, torch.ones(4, 8, dtype=_INT8), torch.zeros(4, 0, 5), None, *_EDGES, _TWO, _to(2, 8)
    ),
    "weights-of-floats": _call(_BYTES, torch.ones(4, 8), torch.ones(4), None, *_EDGES, _TWO, _to(2, 8)),
    "indices-that-wrap": _indices_that_wrap,
    "pairs-that-wrap": _pairs_that_wrap,
    "groups-that-wrap": _call(
        "aten::native_group_norm.out", torch.ones(2, 8), None, None, 1, 4, 2**62 + 4, 2, 1e-5,
        _to(2, 8), _to(1, 2), _to(1, 2),
    ),
    "one-argument-more": _call("aten::mm.out", torch.ones(2, 3), torch.ones(3, 2), _to(2, 2), torch.ones(2, 2)),
    "result-in-an-argument": _result_in_an_argument,
    "results-in-one-another": _results_in_one_another,
}  # fmt: skip
"""None of them runs."""


def _pool(*shape: int) -> Maker:
    results = _to(*shape), _to(*shape, dtype=_INT64)
    window = [1, 1], [1, 1], [0, 0], [1, 1], False
    return _call("aten::max_pool2d_with_indices.out", torch.zeros(shape), *window, *results)


def _find(writer: Writer) -> None:
    many = _made(writer, torch.zeros([4] * 11 + [1] * 5, dtype=torch.uint8), 1)
    writer.call("aten::nonzero.out", many, _to(8, 16, dtype=_INT64, bounded=True))


_LINES, _NONE = torch.zeros(0, _LARGEST), torch.zeros(0, 1)

GREEDY: dict[str, Maker] = {
    "split": _call("aten::split_copy.Tensor_out", _LINES, 1, 1, [_to(0, 1)]),
    "sort": _call("aten::sort.values", _LINES, 1, False, _to(0, _LARGEST), _to(0, _LARGEST, dtype=_INT64)),
    "quantize-rows": _call(
        "quantized_decomposed::quantize_per_token.out", _LINES, _NONE, _NONE, *_EDGES, 1,
        _to(0, _LARGEST, dtype=_INT8),
    ),
    "scale-rows": _call(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out", _LINES, 1, _to(0, 1), _to(0, 1, dtype=_INT64)
    ),
    "embed": _call(
        _BYTES, torch.zeros(0, 1 << 30, dtype=_INT8), torch.ones(0), None, *_EDGES, torch.zeros(0, dtype=_INT64),
        _to(0, 1 << 30),
    ),
    "pool-rows": _pool(1, 0, _LARGEST, 1),
    "pool-planes": _pool(_MANY, _MANY, 0, 1),
    "enlarge": _call(
        "aten::upsample_nearest2d.vec_out", torch.zeros(_MANY, _MANY, 0, 0), [0, 0], None, _to(_MANY, _MANY, 0, 0)
    ),
    "multiply": _call("aten::bmm.out", torch.zeros(_MANY, _MANY, 0), torch.zeros(_MANY, 0, 0), _to(_MANY, _MANY, 0)),
    "convolve": _call(
        "aten::convolution.out", torch.zeros(_MANY, 1, 0), torch.ones(1, 1 << 12, 1), torch.ones(1 << 12),
        [1], [0], [1], True, [0], 1, _to(_MANY, 1 << 12, 0),
    ),
    "pool-nothing": _call(
        "aten::_adaptive_avg_pool2d.out", torch.zeros(1, 1, _LARGEST, 0), [64, 64], _to(1, 1, 64, 64)
    ),
    "triangle": _call("aten::tril.out", torch.zeros(_LARGEST, 0), 0, _to(_LARGEST, 0)),
    "select": _call(
        "aten::masked_select.out", torch.ones(_SIDE, 1), torch.ones(1, _SIDE, dtype=torch.bool), _to(8, bounded=True)
    ),
    "find": _find,
    "look-up": _call(
        "aten::index.Tensor_out", torch.zeros(4, 4, 0),
        [torch.ones(_SIDE, 1, dtype=_INT64), torch.ones(1, _SIDE, dtype=_INT64)], _to(_SIDE, _SIDE, 0),
    ),
    "blend": _call(
        "aten::_upsample_bilinear2d_aa.out", torch.ones(1, 1, _SIDE, 1), [_SIDE, 1], False, 1e-300, None,
        _to(1, 1, _SIDE, 1),
    ),
}  # fmt: skip
"""Small tensors, or none at all, of sizes that would take all memory or all time."""
REFUSED = ("split", "pool-nothing", "select", "find", "blend")
"""Those of `GREEDY` that fail; the others are sound."""


def program(name: str) -> tuple[bytes, str]:
    """The file of one of them, and the operator that it fails at."""
    writer = Writer()
    WRONG[name](writer)
    return writer.program(), writer.operators[-1]
