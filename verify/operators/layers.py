"""Uses of single operators at the sizes that nets have: what ``./inv self.bench --what operators`` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from verify.operators.draws import flat, portable

aten = torch.ops.aten
Make = Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]


def _floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _rows(count: int, of: int) -> torch.Tensor:
    return torch.randint(0, of, (count,))


def _mask(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) < 0.3


def _unary(operator: Any, *shape: int, positive: bool = False) -> Make:
    def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        x = _floats(*shape)
        return operator, (x.abs() + 0.1 if positive else x,)

    return make


def _binary(operator: Any, a: tuple[int, ...], b: tuple[int, ...]) -> Make:
    return lambda: (operator, (_floats(*a), _floats(*b)))


def _layer_norm(rows: int, width: int) -> Make:
    return lambda: (
        lambda x, w, b: aten.native_layer_norm.default(x, [width], w, b, 1e-5),
        (_floats(1, rows, width), _floats(width), _floats(width)),
    )


def _group_norm(channels: int, side: int, groups: int) -> Make:
    return lambda: (
        lambda x, w, b: aten.native_group_norm.default(x, w, b, 1, channels, side * side, groups, 1e-5),
        (_floats(1, channels, side, side), _floats(channels), _floats(channels)),
    )


def _batch_norm(channels: int, side: int) -> Make:
    return lambda: (
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training.default(x, w, b, m, v, 0.1, 1e-5),
        (_floats(1, channels, side, side), *(_floats(channels) for _ in range(3)), torch.rand(channels) + 0.5),
    )


def _swin_index() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Swin's table of relative positions."""
    return lambda x, i: aten.index.Tensor(x, [i]), (_floats(169, 3), _rows(49 * 49, 169))


USES: dict[str, tuple[str, Make]] = {
    "index_select rows": ("aten::index_select.out", lambda: (
        lambda x, i: aten.index_select.default(x, 0, i), (_floats(3136, 96), _rows(784, 3136)))),
    "index_select columns": ("aten::index_select.out", lambda: (
        lambda x, i: aten.index_select.default(x, 2, i), (_floats(1, 64, 56, 56), _rows(28, 56)))),
    "index rows": ("aten::index.Tensor_out", _swin_index),
    "index wide rows": ("aten::index.Tensor_out", lambda: (
        lambda x, i: aten.index.Tensor(x, [i]), (_floats(1000, 768), _rows(128, 1000)))),
    "index second dimension": ("aten::index.Tensor_out", lambda: (
        lambda x, i: aten.index.Tensor(x, [None, i]), (_floats(1, 196, 384), _rows(196, 196)))),
    "index pairs": ("aten::index.Tensor_out", lambda: (
        lambda x, i, j: aten.index.Tensor(x, [i, j]), (_floats(100, 91), _rows(100, 100), _rows(100, 91)))),
    "index pixels": ("aten::index.Tensor_out", lambda: (
        lambda x, i, j: aten.index.Tensor(x, [None, None, i[:, None], j]),
        (_floats(1, 32, 28, 28), _rows(56, 28), _rows(56, 28)))),
    "embedding": ("aten::embedding.out", lambda: (aten.embedding.default, (_floats(1000, 768), _rows(128, 1000)))),
    "gather": ("aten::gather.out", lambda: (
        lambda x, i: aten.gather.default(x, 1, i), (_floats(100, 91), torch.randint(0, 91, (100, 10))))),
    "upsample_nearest2d": ("aten::upsample_nearest2d.vec_out", lambda: (
        lambda x: aten.upsample_nearest2d.vec(x, None, [2.0, 2.0]), (_floats(1, 64, 28, 28),))),
    "upsample_bilinear2d": ("aten::upsample_bilinear2d.vec_out", lambda: (
        lambda x: aten.upsample_bilinear2d.vec(x, [112, 112], False, None), (_floats(1, 21, 28, 28),))),
    "repeat": ("aten::repeat.out", lambda: (lambda x: aten.repeat.default(x, [1, 4, 1]), (_floats(1, 64, 96),))),
    "expand": ("aten::expand_copy.out", lambda: (
        lambda x: aten.expand_copy.default(x, [64, 49, 96]), (_floats(1, 49, 96),))),
    "permute to channels last": ("aten::permute_copy.out", lambda: (
        lambda x: aten.permute_copy.default(x, [0, 2, 3, 1]), (_floats(1, 96, 56, 56),))),
    "permute heads": ("aten::permute_copy.out", lambda: (
        lambda x: aten.permute_copy.default(x, [0, 2, 1, 3]), (_floats(1, 197, 12, 64),))),
    "permute windows": ("aten::permute_copy.out", lambda: (
        lambda x: aten.permute_copy.default(x, [0, 1, 3, 2, 4, 5]), (_floats(1, 8, 7, 8, 7, 96),))),
    "transpose": ("aten::transpose_copy.int_out", lambda: (
        lambda x: aten.transpose_copy.int(x, 1, 2), (_floats(1, 384, 196),))),
    "slice": ("aten::slice_copy.Tensor_out", lambda: (
        lambda x: aten.slice_copy.Tensor(x, 2, 0, 48), (_floats(1, 196, 96),))),
    "slice every other": ("aten::slice_copy.Tensor_out", lambda: (
        lambda x: aten.slice_copy.Tensor(x, 1, 0, 56, 2), (_floats(1, 56, 56, 96),))),
    "select": ("aten::select_copy.int_out", lambda: (
        lambda x: aten.select_copy.int(x, 0, 1), (_floats(3, 12, 197, 64),))),
    "split": ("aten::split_with_sizes_copy.out", lambda: (
        lambda x: aten.split_with_sizes_copy.default(x, [64, 64], 1), (_floats(1, 128, 28, 28),))),
    "cat channels": ("aten::cat.out", lambda: (
        lambda x, y: aten.cat.default([x, y], 1), (_floats(1, 64, 56, 56), _floats(1, 64, 56, 56)))),
    "cat last": ("aten::cat.out", lambda: (
        lambda x, y: aten.cat.default([x, y], -1), (_floats(1, 784, 96), _floats(1, 784, 96)))),
    "stack": ("aten::stack.out", lambda: (
        lambda x, y: aten.stack.default([x, y], 1), (_floats(196, 96), _floats(196, 96)))),
    "roll": ("aten::roll.out", lambda: (
        lambda x: aten.roll.default(x, [-3], [1]), (_floats(1, 56, 56, 96),))),
    "flip": ("aten::flip.out", lambda: (lambda x: aten.flip.default(x, [2]), (_floats(1, 64, 512),))),
    "pixel_shuffle": ("aten::pixel_shuffle.out", lambda: (
        lambda x: aten.pixel_shuffle.default(x, 2), (_floats(1, 64, 32, 32),))),
    "pad": ("aten::constant_pad_nd.out", lambda: (
        lambda x: aten.constant_pad_nd.default(x, [1, 1, 1, 1], 0.0), (_floats(1, 64, 28, 28),))),
    "arange": ("aten::arange.start_out", lambda: (
        lambda x: aten.arange.start_step(0, 4096, 1), (_floats(1),))),
    "layer_norm": ("aten::native_layer_norm.out", _layer_norm(197, 768)),
    "layer_norm narrow": ("aten::native_layer_norm.out", _layer_norm(3136, 96)),
    "group_norm": ("aten::native_group_norm.out", _group_norm(128, 32, 32)),
    "batch_norm": ("aten::_native_batch_norm_legit_no_training.out", _batch_norm(64, 28)),
    "_adaptive_avg_pool2d": ("aten::_adaptive_avg_pool2d.out", lambda: (
        lambda x: aten._adaptive_avg_pool2d.default(x, [1, 1]), (_floats(1, 512, 7, 7),))),
    "avg_pool2d": ("aten::avg_pool2d.out", lambda: (
        lambda x: aten.avg_pool2d.default(x, [2, 2], [2, 2]), (_floats(1, 64, 28, 28),))),
    "max_pool2d": ("aten::max_pool2d_with_indices.out", lambda: (
        lambda x: aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1]), (_floats(1, 64, 28, 28),))),
    "softmax": ("aten::_softmax.out", lambda: (
        lambda x: aten._softmax.default(x, -1, False), (_floats(12, 197, 197),))),
    "log_softmax": ("aten::_log_softmax.out", lambda: (
        lambda x: aten._log_softmax.default(x, -1, False), (_floats(64, 1000),))),
    "mean": ("aten::mean.out", lambda: (
        lambda x: aten.mean.dim(x, [2, 3], True), (_floats(1, 512, 14, 14),))),
    "sum": ("aten::sum.IntList_out", lambda: (lambda x: aten.sum.dim_IntList(x, [1]), (_floats(1, 196, 384),))),
    "amax": ("aten::amax.out", lambda: (lambda x: aten.amax.default(x, [-1]), (_floats(197, 768),))),
    "amax of short lines": ("aten::amax.out", lambda: (lambda x: aten.amax.default(x, [-1]), (_floats(1, 64, 64, 3),))),
    "max of short lines": ("aten::max.dim_max", lambda: (
        lambda x: aten.max.dim(x, -1), (_floats(1, 64, 64, 3),))),
    "softmax of channels": ("aten::_softmax.out", lambda: (
        lambda x: aten._softmax.default(x, 1, False), (_floats(1, 21, 64, 64),))),
    "remainder of short lines": ("aten::remainder.Tensor_out", _binary(
        aten.remainder.Tensor, (1, 64, 64, 3), (3,))),
    "argmax": ("aten::argmax.out", lambda: (lambda x: aten.argmax.default(x, 1), (_floats(1, 21, 64, 64),))),
    "argmax of logits": ("aten::argmax.out", lambda: (lambda x: aten.argmax.default(x, -1), (_floats(1, 50257),))),
    "cumsum": ("aten::cumsum.out", lambda: (lambda x: aten.cumsum.default(x, 1), (_floats(64, 512),))),
    "nonzero": ("aten::nonzero.out", lambda: (aten.nonzero.default, (_mask(1, 4096),))),
    "masked_fill": ("aten::masked_fill.Scalar_out", lambda: (
        lambda x, m: aten.masked_fill.Scalar(x, m, -1e9), (_floats(12, 128, 128), _mask(128, 128)))),
    "where": ("aten::where.self_out", lambda: (
        aten.where.self, (_mask(12, 128, 128), _floats(12, 128, 128), _floats(12, 128, 128)))),
    "add": ("aten::add.out", _binary(aten.add.Tensor, (1, 197, 768), (1, 197, 768))),
    "add a row": ("aten::add.out", _binary(aten.add.Tensor, (1, 197, 768), (768,))),
    "mul": ("aten::mul.out", _binary(aten.mul.Tensor, (1, 64, 56, 56), (1, 64, 1, 1))),
    "div": ("aten::div.out", _binary(aten.div.Tensor, (12, 197, 197), (1,))),
    "relu": ("aten::relu.out", _unary(aten.relu.default, 1, 64, 56, 56)),
    "exp": ("aten::exp.out", _unary(aten.exp.default, 64, 512)),
    "gelu": ("aten::gelu.out", _unary(aten.gelu.default, 1, 197, 3072)),
    "gelu by tanh": ("aten::gelu.out", lambda: (
        lambda x: aten.gelu.default(x, approximate="tanh"), (_floats(1, 64, 3072),))),
    "sigmoid": ("aten::sigmoid.out", _unary(aten.sigmoid.default, 1, 64, 56, 56)),
    "tanh": ("aten::tanh.out", _unary(aten.tanh.default, 64, 512)),
    "rsqrt": ("aten::rsqrt.out", _unary(aten.rsqrt.default, 64, 512, positive=True)),
    "mm": ("aten::mm.out", _binary(aten.mm.default, (197, 768), (768, 96))),
    "bmm": ("aten::bmm.out", _binary(aten.bmm.default, (12, 197, 64), (12, 64, 197))),
    "addmm": ("aten::addmm.out", lambda: (
        aten.addmm.default, (_floats(256), _floats(64, 256), _floats(256, 256)))),
    "linear": ("aten::linear.out", lambda: (aten.linear.default, (_floats(64, 256), _floats(256, 256), _floats(256)))),
    "grid_sampler": ("aten::grid_sampler_2d.out", lambda: (
        lambda x, g: aten.grid_sampler_2d.default(x, g, 0, 0, False),
        (_floats(1, 16, 32, 32), torch.rand(1, 32, 32, 2) * 2.2 - 1.1))),
    "to half": ("dim_order_ops::_to_dim_order_copy.out", lambda: (
        lambda x: aten._to_copy.default(x, dtype=torch.float16), (_floats(1, 64, 28, 28),))),
    "topk": ("aten::topk.values", lambda: (lambda x: aten.topk.default(x, 5), (_floats(8, 1000),))),
}  # fmt: skip
"""Name -> the kernel, and what makes its function and inputs."""


@dataclass(frozen=True)
class Layer:
    """One use as a program without delegates."""

    kernel: str
    """As it is registered: ``aten::add.out``."""
    program: bytes
    inputs: tuple[torch.Tensor, ...]
    results: tuple[torch.Tensor, ...]
    """ATen's."""

    @property
    def sizes(self) -> str:
        """``1x64x28x28, 28``: of the inputs."""
        return ", ".join("x".join(str(size) for size in one.shape) or "scalar" for one in self.inputs)


def export(name: str) -> Layer:
    """The use ``name``, its inputs from a seed.

    Raises:
        ValueError: the exporter made other operators of it.
    """
    torch.manual_seed(0)
    kernel, make = USES[name]
    function, inputs = make()
    program, names = portable(function, inputs)
    if kernel not in names:
        raise ValueError(f"{name} became {', '.join(names)}, not {kernel}")
    return Layer(kernel, program, inputs, flat(function(*inputs)))
