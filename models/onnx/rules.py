"""What of a model decides which provider runs its operators, and the rules that decide. Imports the onnx package.

The rules are those of ``provider_rules.toml``, from which the bundles are built; `models.zoo.tables.RULES`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from models.zoo.tables import RULES, read

QUANTIZED = "Q:"
"""Before the name of an operator that stands between DequantizeLinear and QuantizeLinear."""

FIRST_REPLACEABLE = 4
"""The first IR version in which an initializer may be an input too."""
EDGES = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True)
class _Value:
    dtype: str
    shape: tuple[int, ...] | None
    """-1: not fixed; ``None``: not even the rank is known."""


@dataclass
class Graph:
    """What the rules ask about."""

    nodes: list[Any]
    opset: int
    values: dict[str, _Value]
    constants: dict[str, Any]
    producers: dict[str, Any]
    """The node that computes each value."""
    inputs: tuple[str, ...]
    """Those that have no initializer."""
    ir_version: int
    users: dict[str, list[Any]] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    """How often values are read by others than these nodes: as outputs of the model, and within branches and loops."""


@dataclass(frozen=True)
class Verdict:
    """The first rule that a node breaks; empty if it breaks none."""

    why: str = ""
    danger: str = ""
    withheld: str = ""
    """The initializer without which the provider leaves the node alone; empty if there is none."""


@functools.cache
def table() -> dict[str, Any]:
    """The rules, and the lists that go with them."""
    return read(RULES)


def _shape(tensor: Any) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim)


def read_graph(model: Any) -> Graph:
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
    own = {one.name for one in graph.initializer}
    inputs = tuple(one.name for one in graph.input if one.name not in own)
    if model.ir_version >= FIRST_REPLACEABLE:  # an initializer that is an input too is that input's default
        for one in graph.input:
            constants.pop(one.name, None)
    found = Graph(list(graph.node), opset, values, constants, {}, inputs, model.ir_version)
    found.read.update(one.name for one in graph.output)
    stay = table()["never_folded"]
    for node in found.nodes:
        found.read.update(_read_within(node))
        for name in node.output:
            found.producers[name] = node
        for name in node.input:
            found.users.setdefault(name, []).append(node)
        if node.op_type == "Constant" or (
            node.input and node.op_type not in stay and all(not name or name in constants for name in node.input)
        ):
            constants.update(dict.fromkeys(node.output))  # folded before the providers are asked
    return found


def _read_within(node: Any) -> Iterator[str]:
    """The names of values that nodes in a node's branches read."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for one in graph.node:
                yield from one.input
                yield from _read_within(one)


def is_activation(graph: Graph, node: Any) -> bool:
    """Whether the provider can compute the node in a convolution or pooling before it."""
    return (
        node.domain in ("", "ai.onnx")
        and node.op_type in table()["fused"]
        and (
            node.op_type != "Clip"
            or (bool(nth_input(node, 1)) and all(name in graph.constants for name in node.input[1:]))
        )
    )


def _attribute(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    for one in node.attribute:
        if one.name == name:
            value = helper.get_attribute_value(one)
            return value.decode() if isinstance(value, bytes) else value
    return default


def nth_input(node: Any, index: int) -> str:
    """The name of an input, empty if the node does not have it; -1 is the last one after the first."""
    names = list(node.input)
    if index < 0:  # the last one that is there
        return next((name for name in reversed(names[1:]) if name), "")
    return names[index] if index < len(names) else ""


def in_group(graph: Graph, node: Any) -> bool:
    """Whether the node, which is neither of the two itself, stands between DequantizeLinear and QuantizeLinear."""
    if node.op_type in EDGES:
        return False
    first = graph.producers.get(node.input[0]) if node.input else None
    users = graph.users.get(node.output[0], []) if node.output else []
    return (
        first is not None and first.op_type == "DequantizeLinear" and len(users) == 1
        and users[0].op_type == "QuantizeLinear"
    )  # fmt: skip


def inside(graph: Graph, node: Any) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear goes into a quantized operator: all but those at the ends do."""
    if node.op_type == "QuantizeLinear":
        producer = graph.producers.get(node.input[0])
        return producer is not None and in_group(graph, producer)
    return any(in_group(graph, user) for user in graph.users.get(node.output[0], ()))


class _Checks:
    """The rules' checks: each returns whether the node passes; ``None`` if a type or a shape is not known."""

    def __init__(self, graph: Graph, node: Any) -> None:
        self.graph, self.node = graph, node

    def _value(self, index: int) -> _Value | None:
        return self.graph.values.get(nth_input(self.node, index))

    def _shape(self, index: int) -> tuple[int, ...] | None:
        value = self._value(index)
        return value.shape if value else None

    def never(self) -> bool:
        return False

    def opset(self, **given: int) -> bool:
        return self.graph.opset >= given["from"]

    def type(self, types: list[str]) -> bool | None:
        value = self._value(0)
        return value.dtype in types if value else None

    def other_type(self, types: list[str]) -> bool | None:
        value = self._value(0)
        return value.dtype not in types if value else None

    def rank(self, ranks: list[int], input: int = 0) -> bool | None:  # noqa: A002  # the table's word
        shape = self._shape(input)
        return None if shape is None else len(shape) in ranks

    def constant(self, input: int) -> bool:  # noqa: A002
        name = nth_input(self.node, input)
        producer = self.graph.producers.get(name)
        # Between DequantizeLinear and QuantizeLinear the integers count; elsewhere what a DequantizeLinear gives is not
        # constant to the provider.
        if producer is not None and producer.op_type == "DequantizeLinear" and in_group(self.graph, self.node):
            name = producer.input[0]
        return not name or name in self.graph.constants

    def present(self, input: int) -> bool:  # noqa: A002
        return bool(nth_input(self.node, input))

    def absent(self, output: int) -> bool:
        return len(self.node.output) <= output or not self.node.output[output]

    def fixed(self, **given: int) -> bool | None:
        start = given.get("from", 0)
        if "from_axis_before" in given:
            if self.graph.opset >= given["from_axis_before"]:
                return True
            start = _attribute(self.node, "axis", 1)
        shape = self._shape(0)
        return None if shape is None else all(size >= 0 for size in shape[start:])

    def attribute(self, name: str, allowed: list[Any], default: Any) -> bool:
        return _attribute(self.node, name, default) in allowed

    def ones(self, name: str) -> bool:
        return all(one == 1 for one in _attribute(self.node, name, ()))

    def axis(self) -> bool | None:
        axis, shape = _attribute(self.node, "axis", -1), self._shape(0)
        if self.graph.opset < 13 or axis == -1:
            return True
        return None if shape is None else bool(axis == len(shape) - 1)

    def unshared(self) -> bool:
        readers, fuses, seen, names = 0, False, set(), list(self.node.output[:1])
        while names:
            name = names.pop()
            if name in seen:  # a damaged file may have circles
                continue
            seen.add(name)
            readers += self.graph.read[name]
            for user in self.graph.users.get(name, ()):
                if user.domain in ("", "ai.onnx") and user.op_type in table()["passing"] and user.output:
                    names.append(user.output[0])
                else:
                    readers += 1
                    fuses = fuses or is_activation(self.graph, user)
        return readers < 2 or not fuses

    def vector(self, input: int) -> bool:  # noqa: A002
        shape, weights = self._shape(input), self._shape(1)
        if shape is None or weights is None or len(weights) != 2:
            return False
        return shape == (weights[0 if _attribute(self.node, "transB", 0) else 1],)

    def single(self, inputs: list[int], types: list[str], channels: list[str]) -> bool:
        edges = [self.graph.producers.get(nth_input(self.node, index)) for index in inputs]
        found = {self._step(one) for one in edges if one is not None and one.op_type in EDGES} | {
            self._step(self._after())
        }
        dtypes = {dtype for dtype, _ in found}
        many = any(count != 1 for _, count in found)
        return len(dtypes) == 1 and dtypes <= set(channels if many else types)

    def _after(self) -> Any:
        return self.graph.users[self.node.output[0]][0]

    def _step(self, node: Any) -> tuple[str, int]:
        """Type and number of scales of a QuantizeLinear or DequantizeLinear."""
        scale = self.graph.values.get(node.input[1])
        count = 1
        for size in (scale.shape or ()) if scale else ():
            count *= size
        quantized = node.input[0] if node.op_type == "DequantizeLinear" else node.output[0]
        value = self.graph.values.get(quantized)
        return value.dtype if value else "", count

    def _number(self, name: str) -> float | None:
        value = self.graph.constants.get(name)
        return float(value.reshape(())) if value is not None and value.size == 1 else None

    def scale(self, scale: float) -> bool | None:
        edge = self._after()
        step, zero = self._number(edge.input[1]), self._number(nth_input(edge, 2)) if nth_input(edge, 2) else 0.0
        return None if step is None or zero is None else abs(step - scale) <= 1e-4 and zero == 0

    def steps(self) -> bool:
        before, after = self.graph.producers[self.node.input[0]], self._after()
        numbers = self._number(before.input[1]), self._number(after.input[1])
        return None not in numbers and numbers[0] != numbers[1]


def _full(node: Any) -> str:
    """``Conv``, ``com.microsoft:QLinearAveragePool``."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"


def judge(graph: Graph, node: Any) -> Verdict:
    """Why the provider does not take the node."""
    kind = f"{QUANTIZED if in_group(graph, node) else ''}{_full(node)}"
    about = [rule for rule in table()["rule"] if kind in rule["operators"]]
    if not about:
        return Verdict(table()["outside"])
    checks = _Checks(graph, node)
    for rule in about:
        check: Callable[..., bool | None] = getattr(checks, rule["check"])
        passed = check(**{key: value for key, value in rule.items() if key not in _OF_EVERY_RULE})
        if passed is None:
            passed = rule.get("unknown") == "model" and not _model_breaks(graph, rule)
        if not passed:
            withheld = _initializer(graph, nth_input(node, rule["withhold"])) if "withhold" in rule else ""
            return Verdict(rule["why"], rule.get("danger", ""), withheld)
    return Verdict()


_OF_EVERY_RULE = ("operators", "check", "why", "danger", "withhold", "unknown")


def _model_breaks(graph: Graph, rule: dict[str, Any]) -> bool:
    """Whether the rest of the model is so that a node of which this is not known is taken to break the rule."""
    if rule["check"] == "fixed":
        values = [graph.values.get(name) for name in graph.inputs]
        return any(value is None or value.shape is None or min(value.shape, default=0) < 0 for value in values)
    return any(value.dtype in rule["types"] for value in graph.values.values())


def _initializer(graph: Graph, name: str) -> str:
    """The initializer that a constant is, or comes from; empty if there is none."""
    for _ in graph.nodes:  # a damaged file may have circles
        if name not in graph.producers:
            break
        name = next((one for one in graph.producers[name].input if one in graph.constants), "")
    if name in graph.producers:
        return ""
    return name if name in graph.constants else ""
