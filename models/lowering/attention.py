"""Attention without a mask, as the products and the softmax that it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

aten = torch.ops.aten
_WHOLE = aten.scaled_dot_product_attention.default


def open_unmasked(program: Any, partitioners: Sequence[Any]) -> None:
    """Write attention without a mask by its operators, unless a partitioner takes it as a whole.

    torch's own way compares each score with minus infinity and looks for rows of nothing else, which only masks make:
    six operators that no delegate of XNNPACK's takes, more than half of the time of some nets.
    """
    if any(_WHOLE in one.ops_to_not_decompose(program)[0] for one in partitioners):
        return
    graph = program.graph_module.graph
    for node in graph.find_nodes(op="call_function", target=_WHOLE):
        query, key, value, *more = node.args
        seen = query.meta["val"]
        more += [given for name, given in node.kwargs.items() if name != "scale"]
        if any(more) or type(seen.shape[-1]) is not int:
            continue

        def call(target: Any, *args: Any, of: Any = node) -> Any:
            made = graph.call_function(target, args)
            made.meta = {**of.meta, "val": target(*(getattr(one, "meta", {}).get("val", one) for one in args))}
            return made

        with graph.inserting_before(node):
            wide = torch.promote_types(seen.dtype, torch.float32)  # torch's own computes so, too
            query, key, value = (call(aten.to.dtype, one, wide) for one in (query, key, value))
            query = call(aten.mul.Tensor, query, node.kwargs.get("scale") or 1 / math.sqrt(seen.shape[-1]))
            scores = call(aten.matmul.default, query, call(aten.transpose.int, key, -2, -1))
            found = call(aten.matmul.default, call(aten.softmax.int, scores, -1), value)
            node.replace_all_uses_with(call(aten.to.dtype, found, seen.dtype))
        graph.erase_node(node)
    program.graph_module.recompile()
