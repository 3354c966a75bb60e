"""Cases of operators on images, and of quantized ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from verify.operators.draws import SIZES, Call, Draw, Maker, of_one, shape, tensor

importlib.import_module("executorch.kernels.quantized")
importlib.import_module("executorch.exir.passes._quant_patterns_and_replacements")
importlib.import_module("torch.ao.quantization.fx._decomposed")

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed


def _image(draw: Draw, channels: int, dims: int = 2, least: int = 5) -> torch.Tensor:
    sizes = [draw(st.integers(1, 2)), channels, *(draw(st.integers(least, 9)) for _ in range(dims))]
    return tensor(draw, sizes, torch.float32)


def _convolved(draw: Draw, *, backward: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[Any, ...]]:
    """An image, a weight and a bias that go together; then stride, padding, dilation, the other way, and groups."""
    dims, groups, transposed = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans())

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(dims)]

    kernel, stride, padding, dilation = each(1, 3), each(1, 3), each(0, 2), each(1, 2)
    inside, outside = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    channels = (inside, outside // groups) if transposed else (outside, inside // groups)
    # What is added behind must be smaller than the stride.
    extra = [min(1, step - 1) if transposed and not backward else 0 for step in stride]
    x = _image(draw, inside, dims)
    weight = tensor(draw, (*channels, *kernel), x.dtype, -1, 1)
    return x, weight, tensor(draw, (outside,), x.dtype), (stride, padding, dilation, transposed, extra, groups)


def _convolution(draw: Draw) -> Call:
    *given, settings = _convolved(draw, backward=False)
    return lambda x, w, b: aten.convolution.default(x, w, b, *settings), tuple(given)


def _convolution_backward(draw: Draw) -> Call:
    x, weight, bias, settings = _convolved(draw, backward=True)
    gradient = torch.randn_like(aten.convolution.default(x, weight, None, *settings))
    return (
        lambda g, x, w: aten.convolution_backward.default(g, x, w, [len(bias)], *settings, [True, True, True]),
        (gradient, x, weight),
    )


def _pool(op: Any, *, dilated: bool) -> Maker:
    def make(draw: Draw) -> Call:
        kernel = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
        stride = draw(st.sampled_from([[], [1, 2], [2, 1]]))
        padding = [draw(st.integers(0, size // 2)) for size in kernel]
        ceil = draw(st.booleans())
        last = ([draw(st.integers(1, 2))] * 2, ceil) if dilated else (ceil, draw(st.booleans()))
        return lambda x: op(x, kernel, stride, padding, *last), (_image(draw, 3),)

    return make


def _max_pool_backward(draw: Draw) -> Call:
    x = _image(draw, 2)
    settings = ([3, 2], [2, 2], [1, 1], [1, 1], draw(st.booleans()))
    found, indices = aten.max_pool2d_with_indices.default(x, *settings)
    return (
        lambda g, x, p: aten.max_pool2d_with_indices_backward.default(g, x, *settings, p),
        (torch.randn_like(found), x, indices),
    )


def _to_size(op: Any, sizes: st.SearchStrategy[int], last: Callable[[Draw], tuple[Any, ...]]) -> Maker:
    """An image as another size; ``last`` draws what the operator takes behind the size."""

    def make(draw: Draw) -> Call:
        size, after = [draw(sizes), draw(sizes)], last(draw)
        return lambda x: op(x, size, *after), (_image(draw, 2),)

    return make


def _grid(draw: Draw) -> Call:
    x = _image(draw, 2)
    # Nearest is left to places that are not halfway between pixels.
    mode, padding, corners = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.booleans())
    grid = tensor(draw, (x.shape[0], draw(SIZES), draw(SIZES), 2), x.dtype, -1.4, 1.4)
    return lambda x, g: aten.grid_sampler_2d.default(x, g, mode, padding, corners), (x, grid)


def _codes(draw: Draw, *sizes: int, low: int = -128, high: int = 127, of: torch.dtype = torch.int8) -> torch.Tensor:
    return tensor(draw, sizes or shape(draw), of, low, high)


def _scales(draw: Draw, *sizes: int) -> torch.Tensor:
    return tensor(draw, sizes, torch.float32, 0.01, 0.2)


_SCALE, _ZERO, _RANGE = 0.0625, 3, (-128, 127)
_LARGER = st.integers(2, 14)


def _coded(draw: Draw, x: torch.Tensor) -> tuple[Any, ...]:
    return _SCALE, _ZERO, *_RANGE, torch.int8


def _coding(op: Any, *last: Any, by: str = "", coded: bool) -> Maker:
    """Between numbers and codes, with one scale and zero point, or with one ``by`` each ``channel`` or ``token``."""

    def make(draw: Draw) -> Call:
        rows, width = draw(SIZES), draw(SIZES)
        sizes = {"": shape(draw), "channel": (rows, width, 3), "token": (rows, width)}[by]
        x = _codes(draw, *sizes) if coded else tensor(draw, sizes, torch.float32, -10, 10)
        count = {"": (1,), "channel": (width,), "token": (rows, 1)}[by]
        axis = (1,) if by == "channel" else ()
        given = x, _scales(draw, *count), tensor(draw, count, torch.int64)
        return lambda x, s, z: op(x, s, z, *axis, *_RANGE, torch.int8, *last), given

    return make


def _embedding(op: Any, bits: int, **settings: Any) -> Maker:
    def make(draw: Draw) -> Call:
        rows, groups = draw(st.integers(2, 9)), draw(st.integers(1, 3))
        kind = torch.int8 if bits == 8 else torch.uint8
        low, high = (-128, 127) if bits == 8 else (0, 255)
        table = _codes(draw, rows, 4 * groups, low=low, high=high, of=kind)
        indices = tensor(draw, (draw(SIZES),), torch.int64, 0, rows - 1)
        edges = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        scales = _scales(draw, rows, groups)
        return lambda t, s, p: op(t, s, None, *edges, p, **settings), (table, scales, indices)

    return make


MAKERS: dict[str, Maker] = {
    "aten::convolution.out": _convolution,
    "aten::convolution_backward.out": _convolution_backward,
    "aten::avg_pool2d.out": _pool(aten.avg_pool2d.default, dilated=False),
    "aten::max_pool2d_with_indices.out": _pool(aten.max_pool2d_with_indices.default, dilated=True),
    "aten::max_pool2d_with_indices_backward.grad_input": _max_pool_backward,
    "aten::_adaptive_avg_pool2d.out": _to_size(aten._adaptive_avg_pool2d.default, SIZES, lambda draw: ()),
    "aten::upsample_nearest2d.vec_out": _to_size(aten.upsample_nearest2d.vec, _LARGER, lambda draw: (None,)),
    "aten::upsample_bilinear2d.vec_out": _to_size(
        aten.upsample_bilinear2d.vec, _LARGER, lambda draw: (draw(st.booleans()), None)
    ),
    "aten::_upsample_bilinear2d_aa.out": _to_size(
        aten._upsample_bilinear2d_aa.default, _LARGER, lambda draw: (draw(st.booleans()), None, None)
    ),
    "aten::grid_sampler_2d.out": _grid,
    "quantized_decomposed::quantize_per_tensor.out": of_one(
        quantized.quantize_per_tensor.default, _coded, (torch.float32,), edges=(-10, 10)
    ),
    "quantized_decomposed::dequantize_per_tensor.out": of_one(
        quantized.dequantize_per_tensor.default, _coded, (torch.int8,), edges=_RANGE
    ),
    "quantized_decomposed::quantize_per_tensor.Tensor_out": _coding(quantized.quantize_per_tensor.tensor, coded=False),
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": _coding(
        quantized.dequantize_per_tensor.tensor, coded=True
    ),
    "quantized_decomposed::choose_qparams.Tensor_out": of_one(
        quantized.choose_qparams.tensor, lambda draw, x: (*_RANGE, 1e-6, torch.int8), (torch.float32,), edges=(-7, 5)
    ),
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out": of_one(
        quantized.choose_qparams_per_token_asymmetric.default, lambda draw, x: (torch.int8,), (torch.float32,), (2, 2),
        (-7, 5),
    ),
}  # fmt: skip
for _by, _types in (("channel", ()), ("token", (torch.float32,))):
    _code, _decode = (getattr(quantized, f"{_way}_per_{_by}").default for _way in ("quantize", "dequantize"))
    MAKERS[f"quantized_decomposed::quantize_per_{_by}.out"] = _coding(_code, by=_by, coded=False)
    MAKERS[f"quantized_decomposed::dequantize_per_{_by}.out"] = _coding(_decode, *_types, by=_by, coded=True)
for _name, _bits in (("byte", 8), ("4bit", 4), ("2bit", 2)):
    _op = getattr(quantized, f"embedding_{_name}")
    MAKERS[f"quantized_decomposed::embedding_{_name}.out"] = _embedding(_op.default, _bits)
    MAKERS[f"quantized_decomposed::embedding_{_name}.dtype_out"] = _embedding(_op.dtype, _bits, dtype=torch.float16)
