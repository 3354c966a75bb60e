"""Attention without a mask, as the products and the softmax that it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from models.lowering.graphs import constants

aten = torch.ops.aten
_WHOLE = aten.scaled_dot_product_attention.default


def _value(program: Any, node: Any) -> Any:
    """The tensor that a node always has; ``None`` if it follows from inputs or buffers, is drawn or written to."""
    needed, waiting = {node}, [node]
    while waiting:
        more = set(waiting.pop().all_input_nodes) - needed
        needed |= more
        waiting += more
    held = {**program.constants, **program.state_dict}
    known = {name: held[of] for name, of in constants(program).items() if of not in program.graph_signature.buffers}
    values: dict[Any, Any] = {}
    same = set(needed)  # and what shares memory with these
    for one in program.graph.nodes:
        schema = getattr(one.target, "_schema", None)
        if same.intersection(one.all_input_nodes):
            if schema is None or schema.is_mutable:
                return None
            if any(result.alias_info for result in schema.returns):
                same.add(one)
        if one not in needed:
            continue
        if one.name in known:
            values[one] = known[one.name]
        elif schema is None or torch.Tag.nondeterministic_seeded in one.target.tags:
            return None
        else:
            args, kwargs = torch.fx.map_arg((one.args, one.kwargs), values.__getitem__)
            values[one] = one.target(*args, **kwargs)
    return values[node]


def _lets_through(program: Any, mask: Any) -> bool:
    """Whether a mask is there and lets everything through, as those of models that were given none do."""
    value = _value(program, mask) if isinstance(mask, torch.fx.Node) else None
    return value is not None and bool((value if value.dtype == torch.bool else value == 0).all())


def open_unmasked(program: Any, partitioners: Sequence[Any]) -> None:
    """Write attention without a mask that hides by its operators, unless a partitioner takes it as a whole.

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
        if any(one and not _lets_through(program, one) for one in more) or type(seen.shape[-1]) is not int:
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
