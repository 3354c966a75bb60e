"""Find layers that a scheme should have quantized and that silently stayed in floating point. Imports torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from models.lowering.graphs import Layer, base_name, layers, living, target_name
from models.lowering.lowering import Lowered
from models.request.variants import kind_of
from models.zoo.schemes import Scheme

_RELU = ("aten::relu", "aten::relu_")


def _name(layer: Layer) -> str:
    """``features.0 (linear 128x64)``; a layer outside any named module is named by its weight."""
    shape = "x".join(str(size) for size in layer.shape)
    return f"{layer.path or layer.weight} ({layer.kind} {shape})"


def _followed_by_relu(layer: Layer) -> bool:
    users = list(layer.node.users)
    return len(users) == 1 and users[0].op == "call_function" and base_name(target_name(users[0])) in _RELU


def _groups(layer: Layer) -> int:
    """A convolution's groups, from whichever form of the operator it is."""
    arguments = layer.node.target._schema.arguments  # the schema has their positions
    for position, argument in enumerate(arguments):
        if argument.name == "groups" and len(layer.node.args) > position:
            return int(layer.node.args[position])
    return int(layer.node.kwargs.get("groups", 1))


def _convolution_left(layer: Layer, scheme: Scheme) -> str:
    """Why dynamic quantization skips this convolution; empty if no rule matches."""
    rules = (
        (scheme.group > 0, "XNNPACK has no convolution with int4 blockwise weights"),
        (len(layer.shape) != 4, "dynamic quantization takes 2D convolutions only"),
        (_groups(layer) > 1, "dynamic quantization takes no grouped or depthwise convolutions"),
        (_followed_by_relu(layer), "the quantizer skips a dynamically quantized convolution that a ReLU follows"),
    )
    return next((why for holds, why in rules if holds), "")


def _never_quantized(layer: Layer, scheme: Scheme) -> str:
    """Why the quantizer skipped this layer, as far as its rules are known."""
    unknown = "the quantizer has no pattern for it"
    if layer.kind.startswith("conv"):
        return (_convolution_left(layer, scheme) if scheme.dynamic else "") or unknown
    if layer.kind == "linear" and scheme.group and layer.shape and layer.shape[-1] % scheme.group:
        return f"its {layer.shape[-1]} input features are not a multiple of the block of {scheme.group}"
    if scheme.dynamic:
        return "torchao quantizes torch.nn.Linear modules only, and this product is computed otherwise"
    return unknown


def _judge(expected: Layer, got: Layer | None, scheme: Scheme, lowered: Lowered) -> str:
    """Why the program computes this layer in floating point; empty if it does not."""
    if not expected.weight_quantized:
        return _never_quantized(expected, scheme)
    if got is None or not got.weight_quantized:
        return "quantized, but the delegate takes its weight dequantized and computes in float"
    if not got.delegated:
        refused = lowered.refused.get(got.node.name, "no reason was given")
        return f"quantized, but outside every delegate, where it runs in float: {refused}"
    if not got.activation_quantized:
        return "its weight is quantized, its input is not"
    return ""


def skipped(program: Any, lowered: Lowered, scheme: Scheme, chosen: Sequence[str] = ()) -> tuple[tuple[str, ...], bool]:
    """Layers of the quantized ``program`` that the lowered one computes in floating point, each with the cause;
    and whether the scheme quantizes weights but none of this model's.

    Args:
        program: the exported program after quantization, before lowering.
        chosen: ``PATTERN:KIND`` of the user's; a layer that is to be float is not missing.

    Every product with a constant weight counts: a scheme that quantizes weights is meant for all of them.
    """
    if not scheme.weight_bits:
        return (), False
    left: dict[str, list[Layer]] = defaultdict(list)
    for layer in lowered.layers:
        left[layer.path].append(layer)
    missing = []
    alive = living(program)
    expected_layers = [one for one in layers(program) if one.node in alive]
    for expected in expected_layers:
        same = left[expected.path]
        # A module that computes several layers gives them in the same order before and after lowering.
        got = next((one for one in same if one.weight == expected.weight), same[0] if same else None)
        if got is not None:
            same.remove(got)
        if kind_of(chosen, expected.path) == "float":
            continue
        cause = _judge(expected, got, scheme, lowered)
        if cause:
            missing.append(f"{_name(expected)}: {cause}")
    return tuple(missing), len(missing) == len(expected_layers)
