"""Which provider of ONNX Runtime is expected to run each operator of a file, and why. Imports the onnx package.

An expectation: ONNX Runtime divides the graph after it has fused and folded nodes. ``pte_runner --describe`` says what
a bundle expects, and the result of a run what happened.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.program import Operator
from models.tables import read

XNNPACK = "XnnpackExecutionProvider"
CPU = "CPUExecutionProvider"
QUANTIZED = "Q:"
"""Before the name of an operator that stands between DequantizeLinear and QuantizeLinear."""

_OUTSIDE = "not in the XNNPACK provider's table"
_ALONE = "the XNNPACK provider takes it only as its float operator between DequantizeLinear and QuantizeLinear"
_FLOAT_ONLY = "the XNNPACK provider has it in float only"
_FUSED = {"Clip": ("Conv", "MaxPool", "AveragePool"), "Relu": ("Conv", "MaxPool", "AveragePool")}
_EDGES = ("QuantizeLinear", "DequantizeLinear")


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


@dataclass(frozen=True)
class _Value:
    dtype: str
    shape: tuple[int, ...] | None
    """-1: not fixed; ``None``: not even the rank is known."""


@dataclass
class _Graph:
    nodes: list[Any]
    opset: int
    values: dict[str, _Value]
    constants: dict[str, Any]
    makers: dict[str, Any]
    """Node that makes each value."""
    users: dict[str, list[Any]] = field(default_factory=dict)


@functools.cache
def _rules() -> list[dict[str, Any]]:
    return list(read("onnx/provider.toml")["rule"])  # type: ignore[arg-type]  # a list of tables


def _shape(tensor: Any) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim)


def _graph(model: Any) -> _Graph:
    """What the rules ask about, from a model and ONNX's own shape inference."""
    import onnx
    from onnx import helper, numpy_helper

    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    constants: dict[str, Any] = {
        one.name: numpy_helper.to_array(one) for one in graph.initializer if not one.external_data
    }
    for one in graph.initializer:
        constants.setdefault(one.name, None)
    values = {}
    for one in (*graph.value_info, *graph.input, *graph.output):
        tensor = one.type.tensor_type
        if tensor.elem_type:
            values[one.name] = _Value(helper.tensor_dtype_to_np_dtype(tensor.elem_type).name, _shape(tensor))
    for one in graph.initializer:
        values[one.name] = _Value(helper.tensor_dtype_to_np_dtype(one.data_type).name, tuple(one.dims))
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    found = _Graph(list(graph.node), opset, values, constants, {})
    for node in found.nodes:
        for name in node.output:
            found.makers[name] = node
        for name in node.input:
            found.users.setdefault(name, []).append(node)
        if node.op_type == "Constant" or (
            node.input and node.op_type not in _EDGES and all(not name or name in constants for name in node.input)
        ):
            constants.update(dict.fromkeys(node.output))  # folded before the providers are asked
    return found


def _attribute(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    for one in node.attribute:
        if one.name == name:
            value = helper.get_attribute_value(one)
            return value.decode() if isinstance(value, bytes) else value
    return default


def _input(node: Any, index: int) -> str:
    names = list(node.input)
    if index < 0:  # the last one that is there
        return next((name for name in reversed(names[1:]) if name), "")
    return names[index] if index < len(names) else ""


class _Checks:
    """The rules' checks: each returns whether the node passes. What is not known passes not."""

    def __init__(self, graph: _Graph, node: Any) -> None:
        self.graph, self.node = graph, node

    def _value(self, index: int) -> _Value | None:
        return self.graph.values.get(_input(self.node, index))

    def type(self, types: list[str]) -> bool:
        value = self._value(0)
        return value is not None and value.dtype in types

    def other_type(self, types: list[str]) -> bool:
        value = self._value(0)
        return value is None or value.dtype not in types

    def rank(self, ranks: list[int]) -> bool:
        value = self._value(0)
        return value is not None and value.shape is not None and len(value.shape) in ranks

    def constant(self, input: int) -> bool:  # noqa: A002  # the table's word
        name = _input(self.node, input)
        maker = self.graph.makers.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            name = maker.input[0]
        return not name or name in self.graph.constants

    def present(self, input: int) -> bool:  # noqa: A002
        return bool(_input(self.node, input))

    def absent(self, output: int) -> bool:
        return len(self.node.output) <= output or not self.node.output[output]

    def fixed(self, **given: int) -> bool:
        value = self._value(0)
        if value is None or value.shape is None:
            return False
        start = given.get("from", 0)
        if "from_axis_before" in given:
            if self.graph.opset >= given["from_axis_before"]:
                return True
            start = _attribute(self.node, "axis", 1)
        return all(size >= 0 for size in value.shape[start:])

    def attribute(self, name: str, allowed: list[Any], default: Any) -> bool:
        return _attribute(self.node, name, default) in allowed

    def axis(self) -> bool:
        if self.graph.opset < 13:
            return True
        value, axis = self._value(0), _attribute(self.node, "axis", -1)
        return axis == -1 or (value is not None and value.shape is not None and axis == len(value.shape) - 1)

    def vector(self, input: int) -> bool:  # noqa: A002
        value, weights = self._value(input), self._value(1)
        if value is None or weights is None or not value.shape or not weights.shape:
            return False
        return len(value.shape) == 1 and value.shape[0] in weights.shape

    def single(self, inputs: list[int], types: list[str], channels: list[str]) -> bool:
        found = {self._step(self.graph.makers[_input(self.node, index)]) for index in inputs}
        found.add(self._step(self.graph.users[self.node.output[0]][0]))
        dtypes = {dtype for dtype, _ in found}
        many = any(count != 1 for _, count in found)
        return len(dtypes) == 1 and dtypes <= set(channels if many else types)

    def _step(self, node: Any) -> tuple[str, int]:
        """Type and number of scales of a QuantizeLinear or DequantizeLinear."""
        scale = self.graph.values.get(node.input[1])
        count = 1
        for size in (scale.shape or ()) if scale else ():
            count *= size
        quantized = node.input[0] if node.op_type == "DequantizeLinear" else node.output[0]
        value = self.graph.values.get(quantized)
        return value.dtype if value else "", count

    def scale(self, scale: float) -> bool:
        edge = self.graph.users[self.node.output[0]][0]
        step, zero = (self.graph.constants.get(name) for name in (*edge.input[1:3], "")[:2])
        return step is not None and abs(float(step) - scale) <= 1e-4 and (zero is None or int(zero) == 0)


def _in_group(graph: _Graph, node: Any) -> bool:
    """Whether the node stands between DequantizeLinear and QuantizeLinear."""
    first = graph.makers.get(node.input[0]) if node.input else None
    users = graph.users.get(node.output[0], []) if node.output else []
    return (
        first is not None and first.op_type == "DequantizeLinear" and len(users) == 1
        and users[0].op_type == "QuantizeLinear"
    )  # fmt: skip


def _judge(graph: _Graph, node: Any, kind: str) -> tuple[str, str] | None:
    """``(why, danger)`` of the first rule that the node breaks; ``None`` when it breaks none."""
    about = [rule for rule in _rules() if kind in rule["operators"]]
    if node.domain not in ("", "ai.onnx") or not about:
        if kind.startswith(QUANTIZED) and node.op_type in _taken():
            return _FLOAT_ONLY, ""
        alone = node.op_type.startswith("QLinear") and node.op_type.removeprefix("QLinear") in _taken()
        return (_ALONE if alone else _OUTSIDE), ""
    checks = _Checks(graph, node)
    for rule in about:
        check: Callable[..., bool] = getattr(checks, rule["check"])
        words = {key: value for key, value in rule.items() if key not in ("operators", "check", "why", "danger")}
        if not check(**words):
            return str(rule["why"]), str(rule.get("danger", ""))
    return None


@functools.cache
def _taken() -> frozenset[str]:
    return frozenset(name.removeprefix(QUANTIZED) for rule in _rules() for name in rule["operators"])


def _fused(graph: _Graph, node: Any, taken: set[str]) -> bool:
    """Whether the node is an activation that the provider computes in the convolution or pooling before it."""
    before = graph.makers.get(node.input[0]) if node.input else None
    return (
        before is not None
        and before.op_type in _FUSED.get(node.op_type, ())
        and before.output[0] in taken
        and len(graph.users.get(before.output[0], ())) == 1
        and (
            node.op_type != "Clip"
            or (bool(_input(node, 1)) and all(name in graph.constants for name in node.input[1:]))
        )
    )


def _named(node: Any, kind: str) -> str:
    if not kind.startswith(QUANTIZED) or node.op_type in ("MaxPool", "Resize"):
        return str(node.op_type)
    return "QGemm" if node.op_type == "Gemm" else f"QLinear{node.op_type}"


def placement(model: Any) -> Iterator[Placed]:
    """Every operator of the model's graph but those folded into others before the providers are asked."""
    graph = _graph(model)
    taken: set[str] = set()
    for node in graph.nodes:
        if all(name in graph.constants for name in node.output):
            continue
        grouped = _in_group(graph, node) and node.op_type not in _EDGES
        kind = f"{QUANTIZED}{node.op_type}" if grouped else node.op_type
        if node.op_type in _EDGES and _inside(graph, node):
            continue
        if _fused(graph, node, taken):
            yield Placed(node.name, node.op_type, XNNPACK)
            continue
        broken = _judge(graph, node, kind)
        if broken is None:
            taken.add(node.output[0])
            yield Placed(node.name, _named(node, kind), XNNPACK)
        else:
            yield Placed(node.name, _named(node, kind), CPU, *broken)


def _inside(graph: _Graph, node: Any) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear goes into a quantized operator: all but those at the ends do."""
    if node.op_type == "QuantizeLinear":
        maker = graph.makers.get(node.input[0])
        return maker is not None and _in_group(graph, maker)
    return any(_in_group(graph, user) for user in graph.users.get(node.output[0], ()))


def summary(placed: list[Placed]) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators that the XNNPACK provider is expected to take, and the others with the reasons; by count."""
    taken = Counter(one.operator for one in placed if one.provider == XNNPACK)
    others = Counter((one.operator, one.why) for one in placed if one.provider != XNNPACK)
    return (
        tuple(Operator(name=name, count=count) for name, count in taken.most_common()),
        tuple(Operator(name=name, count=count, why=why) for (name, why), count in others.most_common()),
    )
