"""What a layer with 4- or 8-bit weights and rows quantized when it runs must give, computed with whole numbers.

PyTorch rounds such rows in another way than XNNPACK, and takes one step for all of them, which hides errors. This is
XNNPACK's arithmetic: a scale and a zero point in float32 for each row (its reach, 0 within it, 255 steps), then exact
sums of products. A convolution of single points quantizes each point, whatever the graph says: both engines do so.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verify.upstream.suites import Case

_MAGIC = b"XH00"
_NOBODY = 0xFFFFFFFF
_ALONE = 2
"""Nodes of a graph of a layer without turned dimensions: the converter and the layer."""
_KINDS = ("xnn_datatype_qcint4", "xnn_datatype_qcint8")
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def _graphs(data: bytes) -> list[dict[str, Any]]:
    """The graphs of a program's delegates, as upstream's own compiler of schemas reads them."""
    from executorch.exir._serialize import _flatbuffer

    found = []
    start = data.find(_MAGIC)
    schema = importlib.resources.files("executorch.backends.xnnpack.serialization") / "runtime_schema.fbs"
    while start >= 0:
        offset, size = (int.from_bytes(data[start + at : start + at + 4], "little") for at in (6, 10))
        begin = start - 4 + offset
        with tempfile.TemporaryDirectory(prefix="slipway-graph-") as folder:
            (Path(folder) / "graph.bin").write_bytes(data[begin : begin + size])
            (Path(folder) / "schema.fbs").write_bytes(schema.read_bytes())
            paths = [f"{folder}/{name}" for name in ("schema.fbs", "graph.bin")]
            _flatbuffer._flatc_decompile(folder, *paths, ["--raw-binary"])
            found.append(json.loads((Path(folder) / "graph.json").read_bytes()))
        start = data.find(_MAGIC, start + 4)
    return found


def _blobs(data: bytes) -> dict[str, bytes]:
    """A program's constants by their keys."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    named = deserialize_pte_binary(data).named_data
    if named is None:
        return {}
    return {key: bytes(named.buffers[entry.buffer_index]) for key, entry in named.pte_data.items()}


def quantized_rows(x: np.ndarray[Any, Any]) -> tuple[Numbers, Numbers]:
    """Rows as whole numbers less their zero points, and the step of each row."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float32)
    zero, least, most = np.float32(0), np.float32(-128), np.float32(127)
    low, high = np.minimum(rows.min(1), zero), np.maximum(rows.max(1), zero)
    flat = low == high
    scale = np.where(flat, np.float32(1), np.float32(255) / np.where(flat, np.float32(1), high - low))
    lows, highs = low * scale, high * scale
    points = np.where((least + lows) + (most + highs) > 0, least - lows, most - highs)
    points = np.rint(np.clip(points, least, most))[:, None]
    numbers = np.clip(np.rint(rows * scale[:, None]) + points, least, most) - points
    return numbers.astype(np.float64), (np.float32(1) / scale).astype(np.float64)


def unpacked(raw: bytes, outputs: int, inputs: int) -> Numbers:
    """4-bit weights, two a byte, a row beginning at a byte, around 8."""
    row = (inputs + 1) // 2
    pairs = np.frombuffer(raw, np.uint8)[: outputs * row].reshape(outputs, row)
    return np.stack([pairs & 15, pairs >> 4], -1).reshape(outputs, 2 * row)[:, :inputs].astype(np.float64) - 8


def product(x: np.ndarray[Any, Any], together: int, weights: Numbers) -> Numbers:
    """What a layer gives before its bias.

    Args:
        x: the layer's input, channels last.
        together: so many of the last dimensions are quantized with one step.
        weights: of shape (outputs, inputs), scales applied.
    """
    rows, steps = quantized_rows(x.reshape(-1, math.prod(x.shape[-together:])))
    return (rows * steps[:, None]).reshape(*x.shape) @ weights.T


def _layer(nodes: Sequence[tuple[str, dict[str, Any]]]) -> int | None:
    """Which node is the layer of a graph of one: fully connected, or a convolution of single points of an image."""
    kinds = [kind for kind, _ in nodes]
    if kinds == ["XNNConvert", "XNNFullyConnected"]:
        return 1 if nodes[1][1]["flags"] == 0 else None
    if kinds != ["XNNStaticTranspose", "XNNConvert", "XNNConv2d", "XNNStaticTranspose"]:
        return None
    into, _, layer, out = (node for _, node in nodes)
    one = ("kernel_height", "kernel_width", "subsampling_height", "subsampling_width", "groups")
    none = ("padding_top", "padding_right", "padding_bottom", "padding_left", "flags")
    plain = all(layer[key] == 1 for key in one) and all(layer[key] == 0 for key in none)
    return 2 if plain and (into["perm"], out["perm"]) == ([0, 2, 3, 1], [0, 3, 1, 2]) else None


def exact(case: Case) -> Numbers | None:
    """The output of a program that is one such layer, its weights per channel; ``None`` for any other program."""
    if case.kind != "dynamic" or case.inputs != 1:
        return None
    data = case.file.read_bytes()
    graphs = _graphs(data) if data.count(_MAGIC) == 1 else []
    nodes = [(node["xnode_union_type"], node["xnode_union"]) for graph in graphs for node in graph["xnodes"]]
    index = _layer(nodes)
    if index is None:
        return None
    values = {}
    for value in graphs[0]["xvalues"]:
        union = value["xvalue_union"]
        values[union.get("tensor_value", union)["id_out"]] = union
    blobs, stored = _blobs(data), graphs[0]["constant_data"]

    def blob(index: int) -> bytes:
        return blobs[stored[index]["named_key"]]

    layer = nodes[index][1]
    weights, bias = values[layer["filter_id"]], values.get(layer["bias_id"])
    channels = weights.get("quant_params", {})
    kind = weights.get("tensor_value", {}).get("datatype")
    if weights.get("quant_params_type") != "PerChannelQuant" or kind not in _KINDS:
        return None
    outputs, *_, inputs = weights["tensor_value"]["dims"]
    raw = blob(weights["tensor_value"]["constant_buffer_idx"])
    wide = np.frombuffer(raw, np.int8)[: outputs * inputs] if kind == "xnn_datatype_qcint8" else None
    matrix = unpacked(raw, outputs, inputs) if wide is None else wide.reshape(outputs, inputs).astype(np.float64)
    buffer = channels["scale_buffer_idx"]
    scales = np.frombuffer(blob(buffer), np.float32)[:outputs] if buffer else np.array(channels["scale"], np.float32)
    given = np.load(case.files("input")[0], allow_pickle=False)
    image = len(nodes) > _ALONE
    together = 1 if image else values[layer["input1_id"]]["quant_params"]["num_nonbatch_dims"]
    last = np.moveaxis(given, 1, -1) if image else given
    result = product(last, together, matrix * scales.astype(np.float64)[:, None])
    if bias is not None and layer["bias_id"] != _NOBODY:
        result += np.frombuffer(blob(bias["constant_buffer_idx"]), np.float32)[:outputs]
    low, high = (float(value) for value in _range(graphs[0]["xnodes"][index]))
    return np.asarray(np.clip(np.moveaxis(result, -1, 1) if image else result, low, high))


def _range(node: dict[str, Any]) -> tuple[float, float]:
    limits = node.get("output_min_max") or {}
    return float(limits.get("output_min", "-inf")), float(limits.get("output_max", "inf"))
