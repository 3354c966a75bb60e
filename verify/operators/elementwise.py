"""Cases of operators that compute element by element."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from verify.operators.draws import ALL, FLOATS, INTEGERS, Call, Draw, Maker, broadcast, dtype, of_one, shape, tensor

aten = torch.ops.aten
# Less one: values whose results are far apart where their arguments round differently.
_WHOLE = (*INTEGERS[:4], torch.float32)


def _unary(op: Any, low: float, high: float, of: tuple[torch.dtype, ...], *settings: Any) -> Maker:
    return of_one(op, lambda draw, x: settings, of, edges=(low, high))


def _binary(op: Any, of: tuple[torch.dtype, ...], low: float = -3, high: float = 3, *settings: dict[str, Any]) -> Maker:
    """Of two tensors that broadcast, now and then of two types; the second one's numbers: from ``low`` to ``high``."""

    def make(draw: Draw) -> Call:
        first, second = broadcast(draw)
        kind = dtype(draw, of)
        a = tensor(draw, first, kind, 0 if op is aten.pow.Tensor_Tensor else -9, 9)
        b = tensor(draw, second, dtype(draw, of) if draw(st.booleans()) else kind, low, high)
        given = draw(st.sampled_from(settings)) if settings else {}
        return lambda a, b: op(a, b, **given), (a, b)

    return make


def _number(op: Any, of: tuple[torch.dtype, ...], numbers: tuple[Any, ...], low: float = -9, **settings: Any) -> Maker:
    def make(draw: Draw) -> Call:
        kind = dtype(draw, of)
        number = draw(st.sampled_from([n for n in numbers if kind.is_floating_point or isinstance(n, int)]))
        return lambda x: op(x, number, **settings), (tensor(draw, shape(draw), kind, low, 9),)

    return make


def _power_of_number(draw: Draw) -> Call:
    base = draw(st.sampled_from([2.0, 0.5, 3.0]))
    return lambda x: aten.pow.Scalar(base, x), (tensor(draw, shape(draw), dtype(draw, FLOATS)),)


def _where(draw: Draw) -> Call:
    first, second = broadcast(draw)
    kind = dtype(draw, ALL)
    a, b = tensor(draw, first, kind), tensor(draw, second, kind)
    # Of rows that are chosen as a whole, as masks of attention have them, and of columns.
    sizes = [1 if draw(st.integers(0, 3)) == 0 else size for size in torch.broadcast_shapes(first, second)]
    return aten.where.self, (tensor(draw, sizes, torch.bool), a, b)


def _clamp_tensors(draw: Draw) -> Call:
    first, second = broadcast(draw)
    kind = dtype(draw, _WHOLE)
    low = tensor(draw, second, kind, -3, 0)
    return aten.clamp.Tensor, (tensor(draw, first, kind), low, low + 2)


def _masked_fill(draw: Draw) -> Call:
    x = tensor(draw, shape(draw), dtype(draw, (*FLOATS, *INTEGERS)))
    number = draw(st.integers(0, 100))
    return lambda x, m: aten.masked_fill.Scalar(x, m, number), (x, tensor(draw, x.shape[-1:], torch.bool))


def _fill_tensor(draw: Draw) -> Call:
    kind = dtype(draw, ALL)
    return aten.fill.Tensor, (tensor(draw, shape(draw), kind), tensor(draw, (), kind))


_HALVES = tuple(kind for kind in FLOATS if kind != torch.float16)
_NUMBERS = (-2, 3, 0.75, 1.5)
_BITS = (*INTEGERS[:4], torch.bool)
_ROUNDINGS = ({"rounding_mode": "trunc"}, {"rounding_mode": "floor"})
ANY, UNIT, POSITIVE = (-3.0, 3.0), (-0.9, 0.9), (0.1, 4.0)

MAKERS: dict[str, Maker] = {}
# Floats of any size.
for _name in (
    "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "hardsigmoid", "hardswish", "round", "sigmoid", "silu",
    "sin", "sinh", "tan", "tanh", "trunc", "atan", "asinh",
):  # fmt: skip
    _edges = (-1.4, 1.4) if _name == "tan" else ANY
    MAKERS[f"aten::{_name}.out"] = _unary(getattr(aten, _name).default, *_edges, FLOATS)
for _name in ["asin", "acos", "atanh"]:
    MAKERS[f"aten::{_name}.out"] = _unary(getattr(aten, _name).default, *UNIT, _HALVES)
for _name in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]:
    MAKERS[f"aten::{_name}.out"] = _unary(getattr(aten, _name).default, *POSITIVE, FLOATS)
for _name in ["abs", "neg", "relu", "sign", "isinf", "isnan"]:
    MAKERS[f"aten::{_name}.out"] = _unary(getattr(aten, _name).default, *ANY, (*FLOATS, *INTEGERS[:4]))
MAKERS |= {
    "aten::acosh.out": _unary(aten.acosh.default, 1.1, 5, _HALVES),
    "aten::bitwise_not.out": _unary(aten.bitwise_not.default, *ANY, (*INTEGERS, torch.bool)),
    "aten::logical_not.out": _unary(aten.logical_not.default, *ANY, ALL),
    "aten::gelu.out": of_one(
        lambda x, approximate: aten.gelu.default(x, approximate=approximate),
        lambda draw, x: (draw(st.sampled_from(["none", "tanh"])),),
        FLOATS,
    ),
    "aten::elu.out": _unary(aten.elu.default, *ANY, FLOATS, 1.5),
    "aten::leaky_relu.out": _unary(aten.leaky_relu.default, *ANY, FLOATS, 0.2),
    "aten::hardtanh.out": _unary(aten.hardtanh.default, *ANY, FLOATS, -0.5, 1.25),
    "aten::logit.out": of_one(
        aten.logit.default, lambda draw, x: draw(st.sampled_from([(), (0.125,)])), _HALVES, edges=(0.1, 0.9)
    ),
    "aten::clamp.out": of_one(
        aten.clamp.default, lambda draw, x: draw(st.sampled_from([(-2, 3), (None, 1), (1,)])), _WHOLE, edges=(-9, 9)
    ),
    "aten::clamp.Tensor_out": _clamp_tensors,
    "aten::where.self_out": _where,
    "aten::masked_fill.Scalar_out": _masked_fill,
    "aten::fill.Tensor_out": _fill_tensor,
    "aten::fill.Scalar_out": _number(aten.fill.Scalar, (*FLOATS, *INTEGERS[:4]), _NUMBERS),
    "aten::pow.Scalar_out": _power_of_number,
    "aten::pow.Tensor_Scalar_out": _number(aten.pow.Tensor_Scalar, FLOATS, (2, 3, 0.5), low=0.1),
    "aten::pow.Tensor_Tensor_out": _binary(aten.pow.Tensor_Tensor, FLOATS, 0, 2),
    "aten::atan2.out": _binary(aten.atan2.default, FLOATS, 0.5, 3),
    "aten::div.out": _binary(aten.div.Tensor, (*FLOATS, *INTEGERS), 1, 5),
    "aten::div.out_mode": _binary(aten.div.Tensor_mode, _WHOLE, 1, 5, *_ROUNDINGS),
    "aten::div.Scalar_out": _number(aten.div.Scalar, (*FLOATS, *INTEGERS), (-2, 3, 0.75)),
    "aten::div.Scalar_mode_out": _number(aten.div.Scalar_mode, _WHOLE, (-2, 3), rounding_mode="floor"),
    "aten::floor_divide.out": _binary(aten.floor_divide.default, _WHOLE, 1, 5),
    "aten::fmod.Tensor_out": _binary(aten.fmod.Tensor, _WHOLE, 1, 5),
    "aten::remainder.Tensor_out": _binary(aten.remainder.Tensor, _WHOLE, 1, 5),
    "aten::fmod.Scalar_out": _number(aten.fmod.Scalar, _WHOLE, (3, 4)),
    "aten::remainder.Scalar_out": _number(aten.remainder.Scalar, _WHOLE, (3, -4)),
    "aten::rsub.Scalar_out": _number(aten.rsub.Scalar, (*FLOATS, *INTEGERS[:4]), _NUMBERS),
    "aten::bitwise_left_shift.Tensor_out": _binary(aten.bitwise_left_shift.Tensor, INTEGERS[:3], 0, 4),
    "aten::bitwise_right_shift.Tensor_out": _binary(aten.bitwise_right_shift.Tensor, INTEGERS[:3], 0, 4),
    "aten::bitwise_left_shift.Tensor_Scalar_out": _number(aten.bitwise_left_shift.Tensor_Scalar, INTEGERS[:3], (1, 3)),
    "aten::bitwise_right_shift.Tensor_Scalar_out": _number(
        aten.bitwise_right_shift.Tensor_Scalar, INTEGERS[:3], (1, 3)
    ),
}
for _name in ["add", "sub", "mul"]:
    _factors = ({}, {"alpha": 2}) if _name != "mul" else ()
    MAKERS[f"aten::{_name}.out"] = _binary(getattr(aten, _name).Tensor, (*FLOATS, *INTEGERS), -3, 3, *_factors)
    MAKERS[f"aten::{_name}.Scalar_out"] = _number(getattr(aten, _name).Scalar, (*FLOATS, *INTEGERS[:4]), _NUMBERS)
for _name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    MAKERS[f"aten::{_name}.Tensor_out"] = _binary(getattr(aten, _name).Tensor, ALL)
    MAKERS[f"aten::{_name}.Scalar_out"] = _number(getattr(aten, _name).Scalar, (*FLOATS, *INTEGERS[:4]), _NUMBERS)
for _name in ["and", "or", "xor"]:
    MAKERS[f"aten::bitwise_{_name}.Tensor_out"] = _binary(getattr(aten, f"bitwise_{_name}").Tensor, _BITS)
    MAKERS[f"aten::bitwise_{_name}.Scalar_out"] = _number(getattr(aten, f"bitwise_{_name}").Scalar, _BITS[:4], (5, 6))
    MAKERS[f"aten::logical_{_name}.out"] = _binary(getattr(aten, f"logical_{_name}").default, ALL)
for _name in ["maximum", "minimum"]:
    MAKERS[f"aten::{_name}.out"] = _binary(getattr(aten, _name).default, ALL)
