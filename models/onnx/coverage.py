"""Which provider of ONNX Runtime is expected to run each operator of a file, and why. Imports the onnx package.

An expectation: ONNX Runtime divides the graph after it has fused and folded nodes. ``pte_runner --describe`` says what
a bundle expects, and the result of a run what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.formats.program import Operator
from models.onnx.rules import (
    EDGES,
    FIRST_REPLACEABLE,
    Graph,
    Verdict,
    in_group,
    inside,
    is_activation,
    judge,
    read_graph,
    table,
)

XNNPACK = "XnnpackExecutionProvider"
CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class Placed:
    """An operator with the provider that is expected to run it."""

    name: str
    """Of the node."""
    operator: str
    """As ONNX Runtime names it when it runs: a quantized ``Conv`` is a ``QLinearConv``."""
    provider: str
    why: str = ""
    danger: str = ""
    """What the provider does with it instead of leaving it alone."""

    def reason(self) -> str:
        """``why`` and ``danger`` as the runner says them."""
        return f"{self.why}: the XNNPACK provider {self.danger}" if self.danger else self.why


def _fused(graph: Graph, node: Any, taken: set[str]) -> bool:
    """Whether the node is an activation that the provider computes in the convolution or pooling before it."""
    before = graph.producers.get(node.input[0]) if node.input else None
    return (
        before is not None
        and is_activation(graph, node)
        and before.op_type in table()["fused_into"]
        and before.output[0] in taken
        and len(graph.users.get(before.output[0], ())) == 1
    )


def _named(graph: Graph, node: Any) -> str:
    if not in_group(graph, node) or node.op_type in ("MaxPool", "Resize"):
        return str(node.op_type)
    return "QGemm" if node.op_type == "Gemm" else f"QLinear{node.op_type}"


def placement(model: Any) -> Iterator[Placed]:
    """Every operator of the model's graph but those folded into others before the providers are asked."""
    graph = read_graph(model)
    taken: set[str] = set()
    judged = [(node, judge(graph, node)) for node in graph.nodes]
    whole = _kept_whole(graph, judged)
    for node, verdict in judged:
        if all(name in graph.constants for name in node.output) or (node.op_type in EDGES and inside(graph, node)):
            continue
        if _fused(graph, node, taken):
            yield Placed(node.name, node.op_type, XNNPACK)
        elif why := verdict.why or whole:
            yield Placed(node.name, _named(graph, node), CPU, why, verdict.danger)
        else:
            taken.add(node.output[0])
            yield Placed(node.name, _named(graph, node), XNNPACK)


def _kept_whole(graph: Graph, judged: list[tuple[Any, Verdict]]) -> str:
    """Why the bundle keeps the whole model from the provider; empty if it keeps single nodes from it, or none."""
    dangers = [(node, verdict) for node, verdict in judged if verdict.danger]
    single = graph.ir_version >= FIRST_REPLACEABLE and all(verdict.withheld for _, verdict in dangers)
    if not dangers or single:
        return ""
    node, verdict = dangers[0]
    first = Placed(node.name, node.op_type, CPU, verdict.why, verdict.danger)
    return f"the model is kept from the XNNPACK provider, for {first.operator} {first.name} ({first.reason()})"


def summary(placed: list[Placed]) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators that the XNNPACK provider is expected to take, and the others with the reasons; by count."""
    taken = Counter(one.operator for one in placed if one.provider == XNNPACK)
    others = Counter((one.operator, one.why) for one in placed if one.provider != XNNPACK)
    return (
        tuple(Operator(name=name, count=count) for name, count in taken.most_common()),
        tuple(Operator(name=name, count=count, why=why) for (name, why), count in others.most_common()),
    )
