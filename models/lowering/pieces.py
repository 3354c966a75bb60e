"""Pieces of tensors as slices and views, which XNNPACK has: splits, selections and squeezes interrupt its delegates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import PassResult

from models.lowering.graphs import target_name

aten = ops.edge.aten
_SPLIT, _SELECT = aten.split_with_sizes_copy.default, aten.select_copy.int
_PIECES = (_SPLIT, _SELECT, aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims)
_TYPES = (torch.float32, torch.float16)


def _gains(node: Any, results: Sequence[Any], taken: set[str]) -> bool:
    """Whether sizes are known and a partitioner takes a neighbour: a delegate for a piece alone costs more."""
    values = [one.meta["val"] for one in results]
    sizes = [size for one in (node.args[0].meta["val"], *values) for size in one.shape]
    near = [*node.all_input_nodes, *(user for one in results for user in one.users)]
    return (
        all(isinstance(size, int) and size > 0 for size in sizes)
        and all(one.dtype in _TYPES and one.dim() > 0 for one in values)
        and any(getattr(one.target, "__name__", "").removeprefix("aten.") in taken for one in near)
    )


def _part(node: Any, result: Any) -> tuple[int, int, int]:
    """Axis, begin and end of what a split or a selection takes."""
    given, shape = node.args[1:], node.args[0].meta["val"].shape
    if node.target is _SELECT:
        axis, begin, length = given[0] % len(shape), given[1], 1
    else:
        axis, index = (given[1] if len(given) > 1 else 0) % len(shape), result.args[1]
        begin, length = sum(given[0][:index]), given[0][index]
    return axis, begin % shape[axis], begin % shape[axis] + length


def _replace(graph: Any, node: Any, result: Any) -> None:
    source = node.args[0]
    with graph.inserting_before(result):
        if node.target in (_SPLIT, _SELECT):
            axis, begin, end = _part(node, result)
            value = torch.narrow(source.meta["val"], axis, begin, end - begin).clone()
            source = graph.call_function(aten.slice_copy.Tensor, (source, axis, begin, end))
            source.meta = {**result.meta, "val": value}
        if node.target is not _SPLIT:
            source = graph.call_function(aten.view_copy.default, (source, list(result.meta["val"].shape)))
            source.meta = dict(result.meta)
    result.replace_all_uses_with(source)


def cut_as_taken(partitioners: Sequence[Any], graph_module: Any) -> PassResult:
    """A pass over a graph in edge dialect, which it changes: pieces between operators that a partitioner takes.

    The results stay the same, bit by bit. An unrolled LSTM takes nine tenths of its time, because it is one delegate.
    """
    graph = graph_module.graph
    taken = {rule for one in partitioners for rule in getattr(one, "target_partitioner_configs", ())}
    for node in [one for one in graph.nodes if one.target in _PIECES]:
        several = [one for one in node.users if target_name(one) == "_operator.getitem"]
        results = several if node.target is _SPLIT else [node]
        if _gains(node, results, taken):
            for result in results:
                _replace(graph, node, result)
    graph.eliminate_dead_code()
    graph_module.recompile()
    return PassResult(graph_module, True)
