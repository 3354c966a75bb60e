"""Programs that are well-formed and wrong: what they ask of a kernel, it must not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verify.operators import attacks
from verify.operators.written import Out, ValueRef, Writer


def _unplaced(writer: Writer, like: torch.Tensor) -> ValueRef:
    """A tensor that has no memory, neither planned nor given."""
    index = writer.tensor(like)
    writer.values[index].val.allocation_info = None
    return ValueRef(index)


def _reads_without_memory(writer: Writer) -> None:
    writer.call("aten::relu.out", _unplaced(writer, torch.zeros(4)), Out(torch.zeros(4)))


def _writes_without_memory(writer: Writer) -> None:
    writer.call("aten::relu.out", torch.ones(4), _unplaced(writer, torch.zeros(4)))


def _views_more_than_there_is(writer: Writer) -> None:
    writer.call("executorch_prim::et_view.default", torch.ones(4), [2**16, 2**15], Out(torch.zeros(2, 2)))


def _indexes_into_another_type(writer: Writer) -> None:
    kept = Out(torch.zeros(3, dtype=torch.int64))
    writer.call("aten::index.Tensor_out", torch.ones(3, dtype=torch.uint8), [torch.tensor([0, 1, 2])], kept)


def _gathers_into_another_type(writer: Writer) -> None:
    kept = Out(torch.zeros(3, dtype=torch.float64))
    writer.call("aten::gather.out", torch.ones(3), 0, torch.tensor([0, 1, 2]), False, kept)


def _index(writer: Writer, number: int) -> ValueRef:
    return writer.constant(torch.tensor([0, number, 1]))


def _selects_beyond(writer: Writer) -> None:
    writer.call("aten::index_select.out", torch.ones(2, 4), 1, _index(writer, 4), Out(torch.zeros(2, 3)))


def _selects_before(writer: Writer) -> None:
    writer.call("aten::index_select.out", torch.ones(4, 2), 0, _index(writer, -1), Out(torch.zeros(3, 2)))


def _indexes_beyond(writer: Writer) -> None:
    writer.call("aten::index.Tensor_out", torch.ones(4, 2), [_index(writer, 4)], Out(torch.zeros(3, 2)))


def _indexes_before(writer: Writer) -> None:
    both = [_index(writer, 1), _index(writer, -3)]
    writer.call("aten::index.Tensor_out", torch.ones(4, 2), both, Out(torch.zeros(3)))


def _puts_beyond(writer: Writer) -> None:
    writer.call("aten::index_put.out", torch.ones(4), [_index(writer, 4)], torch.ones(1), False, Out(torch.zeros(4)))


def _gathers_beyond(writer: Writer) -> None:
    writer.call("aten::gather.out", torch.ones(2), 0, _index(writer, 2), False, Out(torch.zeros(3)))


def _repeats_beyond_all_numbers(writer: Writer) -> None:
    writer.call("aten::repeat.out", torch.ones(4), [2**62 + 1], Out(torch.zeros(4)))


def _strides_beyond_all_numbers(writer: Writer) -> None:
    far = [2**31 - 1] * 4
    writer.call("aten::as_strided_copy.out", torch.ones(16), [2] * 4, far, 0, Out(torch.zeros(2, 2, 2, 2)))


def _too_few_arguments(writer: Writer) -> None:
    writer.call("aten::add.out", torch.ones(4), torch.ones(4))


def _overwrites_its_input(writer: Writer) -> None:
    both = writer.given(torch.ones(64, 3), bounded=True)
    writer.call("aten::mm.out", both, torch.ones(3, 2), both)


def _rounds_in_an_unknown_way(writer: Writer) -> None:
    writer.call("aten::div.out_mode", torch.ones(4), torch.ones(4), "round", Out(torch.zeros(4)))


def _approximates_in_an_unknown_way(writer: Writer) -> None:
    writer.call("aten::gelu.out", torch.ones(4), "cubic", Out(torch.zeros(4)))


WRONG: dict[str, Callable[[Any], None]] = {
    "reads-without-memory": _reads_without_memory,
    "writes-without-memory": _writes_without_memory,
    "views-too-much": _views_more_than_there_is,
    "index-type": _indexes_into_another_type,
    "gather-type": _gathers_into_another_type,
    "select-beyond": _selects_beyond,
    "select-before": _selects_before,
    "index-beyond": _indexes_beyond,
    "index-before": _indexes_before,
    "put-beyond": _puts_beyond,
    "gather-beyond": _gathers_beyond,
    "repeat-overflow": _repeats_beyond_all_numbers,
    "stride-overflow": _strides_beyond_all_numbers,
    "too-few": _too_few_arguments,
    "unknown-rounding": _rounds_in_an_unknown_way,
    "unknown-approximation": _approximates_in_an_unknown_way,
    "input-as-output": _overwrites_its_input,
    **attacks.WRONG,
}


def program(name: str) -> tuple[bytes, str]:
    """The file of one of them, and the operator that it fails at."""
    writer = Writer()
    WRONG[name](writer)
    return writer.program(), writer.operators[-1]
