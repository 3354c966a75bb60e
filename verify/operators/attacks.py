"""Programs that are well-formed and wrong: they lead a kernel out of its memory, or make it take all there is."""

from __future__ import annotations

from collections.abc import Callable

import torch

from verify.operators.written import Out, ValueRef, Writer

Maker = Callable[[Writer], None]
_LARGEST = 2**31 - 1
_ROWS = 1 << 22
_SIDE = 1 << 13


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


def _indexes_into_another_type(writer: Writer) -> None:
    kept = Out(torch.zeros(3, dtype=torch.int64))
    writer.call("aten::index.Tensor_out", torch.ones(3, dtype=torch.uint8), [torch.tensor([0, 1, 2])], kept)


def _gathers_into_another_type(writer: Writer) -> None:
    kept = Out(torch.zeros(3, dtype=torch.float64))
    writer.call("aten::gather.out", torch.ones(3), 0, torch.tensor([0, 1, 2]), False, kept)


def _index(writer: Writer, number: int) -> ValueRef:
    return writer.constant(torch.tensor([0, number, 1]))


def _indexes_before(writer: Writer) -> None:
    both = [_index(writer, 1), _index(writer, -3)]
    writer.call("aten::index.Tensor_out", torch.ones(4, 2), both, Out(torch.zeros(3)))


def _strides_beyond_all_numbers(writer: Writer) -> None:
    far = [2**31 - 1] * 4
    writer.call("aten::as_strided_copy.out", torch.ones(16), [2] * 4, far, 0, Out(torch.zeros(2, 2, 2, 2)))


def _overwrites_its_input(writer: Writer) -> None:
    both = writer.given(torch.ones(64, 3), bounded=True)
    writer.call("aten::mm.out", both, torch.ones(3, 2), both)


def _moved_into_an_input(writer: Writer) -> None:
    """The result is among the inputs once a list has been moved: it would grow while it is read."""
    from executorch.exir import schema

    rows = _made(writer, torch.zeros(_ROWS - 1, 3), 2.0)
    grows = ValueRef(writer.tensor(torch.zeros(_ROWS, 3), bounded=True))
    writer.call("aten::full.out", [1, 3], 1.0, grows)
    first, second = writer._argument([rows]), writer._argument([rows, grows])
    writer.instructions.append(schema.Instruction(schema.MoveCall(move_from=second, move_to=first)))
    writer.call("aten::cat.out", ValueRef(first), 0, grows)


def _into_a_constant(writer: Writer) -> None:
    edges = (-128, 127)
    scale, zero = writer.constant(torch.ones(1, dtype=torch.float64)), Out(torch.zeros(1, dtype=torch.int64))
    writer.call("quantized_decomposed::choose_qparams.Tensor_out", torch.ones(4), *edges, 1e-6, 1, scale, zero)


def _scales_without_any(writer: Writer) -> None:
    weight, indices = torch.ones(4, 8, dtype=torch.int8), torch.ones(2, dtype=torch.int64)
    scales = torch.zeros(4, 0, 5)
    kept = Out(torch.zeros(2, 8))
    writer.call("quantized_decomposed::embedding_byte.out", weight, scales, None, -128, 127, indices, kept)


def _weights_of_floats(writer: Writer) -> None:
    weight, indices = torch.ones(4, 8), torch.ones(2, dtype=torch.int64)
    kept = Out(torch.zeros(2, 8))
    writer.call("quantized_decomposed::embedding_byte.out", weight, torch.ones(4), None, -128, 127, indices, kept)


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


def _groups_that_wrap(writer: Writer) -> None:
    kept = [Out(torch.zeros(2, 8)), Out(torch.zeros(1, 2)), Out(torch.zeros(1, 2))]
    writer.call("aten::native_group_norm.out", torch.ones(2, 8), None, None, 1, 4, 2**62 + 4, 2, 1e-5, *kept)


def _one_argument_more(writer: Writer) -> None:
    kept = Out(torch.zeros(2, 2))
    writer.call("aten::mm.out", torch.ones(2, 3), torch.ones(3, 2), kept, torch.ones(2, 2))


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


WRONG: dict[str, Maker] = {
    "reads-without-memory": lambda writer: writer.call(
        "aten::relu.out", _unplaced(writer, torch.zeros(4)), Out(torch.zeros(4))
    ),
    "writes-without-memory": lambda writer: writer.call(
        "aten::relu.out", torch.ones(4), _unplaced(writer, torch.zeros(4))
    ),
    "views-too-much": lambda writer: writer.call(
        "executorch_prim::et_view.default", torch.ones(4), [2**16, 2**15], Out(torch.zeros(2, 2))
    ),
    "index-type": _indexes_into_another_type,
    "gather-type": _gathers_into_another_type,
    "select-beyond": lambda writer: writer.call(
        "aten::index_select.out", torch.ones(2, 4), 1, _index(writer, 4), Out(torch.zeros(2, 3))
    ),
    "select-before": lambda writer: writer.call(
        "aten::index_select.out", torch.ones(4, 2), 0, _index(writer, -1), Out(torch.zeros(3, 2))
    ),
    "index-beyond": lambda writer: writer.call(
        "aten::index.Tensor_out", torch.ones(4, 2), [_index(writer, 4)], Out(torch.zeros(3, 2))
    ),
    "index-before": _indexes_before,
    "put-beyond": lambda writer: writer.call(
        "aten::index_put.out", torch.ones(4), [_index(writer, 4)], torch.ones(1), False, Out(torch.zeros(4))
    ),
    "gather-beyond": lambda writer: writer.call(
        "aten::gather.out", torch.ones(2), 0, _index(writer, 2), False, Out(torch.zeros(3))
    ),
    "repeat-overflow": lambda writer: writer.call("aten::repeat.out", torch.ones(4), [2**62 + 1], Out(torch.zeros(4))),
    "stride-overflow": _strides_beyond_all_numbers,
    "too-few": lambda writer: writer.call("aten::add.out", torch.ones(4), torch.ones(4)),
    "unknown-rounding": lambda writer: writer.call(
        "aten::div.out_mode", torch.ones(4), torch.ones(4), "round", Out(torch.zeros(4))
    ),
    "unknown-approximation": lambda writer: writer.call("aten::gelu.out", torch.ones(4), "cubic", Out(torch.zeros(4))),
    "input-as-output": _overwrites_its_input,
    "moved-into-an-input": _moved_into_an_input,
    "into-a-constant": _into_a_constant,
    "scales-without-any": _scales_without_any,
    "weights-of-floats": _weights_of_floats,
    "indices-that-wrap": _indices_that_wrap,
    "pairs-that-wrap": _pairs_that_wrap,
    "groups-that-wrap": _groups_that_wrap,
    "one-argument-more": _one_argument_more,
    "result-in-an-argument": _result_in_an_argument,
    "results-in-one-another": _results_in_one_another,
}
"""None of them runs."""


def _split(writer: Writer) -> None:
    part = writer.tensor(torch.zeros(0, 1))
    writer.call("aten::split_copy.Tensor_out", torch.zeros(0, _LARGEST), 1, 1, [ValueRef(part)])


def _sort(writer: Writer) -> None:
    lines = torch.zeros(0, _LARGEST)
    writer.call("aten::sort.values", lines, 1, False, Out(lines), Out(lines.long()))


def _quantize_rows(writer: Writer) -> None:
    lines, none = torch.zeros(0, _LARGEST), torch.zeros(0, 1)
    kept = Out(lines.to(torch.int8))
    writer.call("quantized_decomposed::quantize_per_token.out", lines, none, none, -128, 127, 1, kept)


def _scale_rows(writer: Writer) -> None:
    kept = Out(torch.zeros(0, 1)), Out(torch.zeros(0, 1, dtype=torch.int64))
    name = "quantized_decomposed::choose_qparams_per_token_asymmetric.out"
    writer.call(name, torch.zeros(0, _LARGEST), 1, *kept)


def _embed(writer: Writer) -> None:
    weight, indices = torch.zeros(0, 1 << 30, dtype=torch.int8), torch.zeros(0, dtype=torch.int64)
    kept = Out(torch.zeros(0, 1 << 30))
    writer.call("quantized_decomposed::embedding_byte.out", weight, torch.ones(0), None, -128, 127, indices, kept)


def _pool(shape: tuple[int, ...]) -> Maker:
    image = torch.zeros(shape)

    def write(writer: Writer) -> None:
        kept = Out(image), Out(image.long())
        writer.call("aten::max_pool2d_with_indices.out", image, [1, 1], [1, 1], [0, 0], [1, 1], False, *kept)

    return write


def _enlarge(writer: Writer) -> None:
    image = torch.zeros(1 << 29, 1 << 29, 0, 0)
    writer.call("aten::upsample_nearest2d.vec_out", image, [0, 0], None, Out(image))


def _multiply(writer: Writer) -> None:
    left, right = torch.zeros(1 << 29, 1 << 29, 0), torch.zeros(1 << 29, 0, 0)
    writer.call("aten::bmm.out", left, right, Out(left))


def _convolve(writer: Writer) -> None:
    lines, kept = torch.zeros(1 << 29, 1, 0), Out(torch.zeros(1 << 29, 1 << 12, 0))
    weight, bias = torch.ones(1, 1 << 12, 1), torch.ones(1 << 12)
    writer.call("aten::convolution.out", lines, weight, bias, [1], [0], [1], True, [0], 1, kept)


def _pool_nothing(writer: Writer) -> None:
    image = torch.zeros(1, 1, _LARGEST, 0)
    writer.call("aten::_adaptive_avg_pool2d.out", image, [64, 64], Out(torch.zeros(1, 1, 64, 64)))


def _select(writer: Writer) -> None:
    mask = torch.ones(1, _SIDE, dtype=torch.bool)
    kept = Out(torch.zeros(8), bounded=True)
    writer.call("aten::masked_select.out", torch.ones(_SIDE, 1), mask, kept)


def _find(writer: Writer) -> None:
    many = _made(writer, torch.zeros([4] * 11 + [1] * 5, dtype=torch.uint8), 1)
    writer.call("aten::nonzero.out", many, Out(torch.zeros(8, 16, dtype=torch.int64), bounded=True))


def _look_up(writer: Writer) -> None:
    rows, columns = torch.ones(_SIDE, 1, dtype=torch.int64), torch.ones(1, _SIDE, dtype=torch.int64)
    writer.call("aten::index.Tensor_out", torch.zeros(4, 4, 0), [rows, columns], Out(torch.zeros(_SIDE, _SIDE, 0)))


def _blend(writer: Writer) -> None:
    image = torch.ones(1, 1, _SIDE, 1)
    name = "aten::_upsample_bilinear2d_aa.out"
    writer.call(name, image, [_SIDE, 1], False, 1e-300, None, Out(image))


GREEDY: dict[str, tuple[Maker, bool]] = {
    "split": (_split, False),
    "sort": (_sort, True),
    "quantize-rows": (_quantize_rows, True),
    "scale-rows": (_scale_rows, True),
    "embed": (_embed, True),
    "pool-rows": (_pool((1, 0, _LARGEST, 1)), True),
    "pool-planes": (_pool((1 << 29, 1 << 29, 0, 1)), True),
    "enlarge": (_enlarge, True),
    "multiply": (_multiply, True),
    "convolve": (_convolve, True),
    "pool-nothing": (_pool_nothing, False),
    "triangle": (
        lambda writer: writer.call("aten::tril.out", torch.zeros(_LARGEST, 0), 0, Out(torch.zeros(_LARGEST, 0))),
        True,
    ),
    "select": (_select, False),
    "find": (_find, False),
    "look-up": (_look_up, True),
    "blend": (_blend, False),
}
"""Small tensors, or none at all, of sizes that would take all memory or all time; and whether they are sound."""


def program(name: str) -> tuple[bytes, str]:
    """The file of one of them, and the operator that it fails at."""
    writer = Writer()
    WRONG[name](writer)
    return writer.program(), writer.operators[-1]
