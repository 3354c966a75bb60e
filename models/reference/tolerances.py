"""How close a device's outputs must be to the reference, and the program to the model. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.formats.program import ENDLESS, Agreement, Tolerance
from models.loading import reference
from models.lowering.graphs import is_dequantize, layers, source, weight_argument
from models.reference.perturbing import RUNS, Measured
from models.zoo.schemes import Scheme

_FP32 = 1e-5
# Of the spread. Half precision loses 4 of its 11 bits: MobileNetV2 on a Cortex-A76 loses 2^-7.9, one layer 2^-8.9.
# bfloat16 has 8, and CPUs add up in float32 where results have that type.
_SIXTEEN = {
    torch.float16: (2**-7, "CPUs that add up in half precision differ by up to 2^-7"),
    torch.bfloat16: (2**-6, "two steps of bfloat16, where numbers are largest, are 2^-6"),
}
_SHARE = 2e-6  # of the spread: some 17 units in the last place of the largest numbers, for outputs far above 1

_ROOM = 2
"""What was measured, times this, is allowed: a few runs do not find the worst case."""
_GAIN = 1e-3
"""The least gain that counts: roundings have no direction, but a processor may prefer one in ties."""

# Largest difference between the program and the float model, in parts of the output's spread. Beyond it the export
# is suspect, not the arithmetic. Seen in the zoo: fp32 2e-7, fp16 1e-3, 8 bits 0.03, 4 bits 0.1.
_AGREEMENT: dict[str | int, float] = {"none": 1e-4, "half": 2**-6, 8: 0.15, 4: 0.35}
_ROUNDED = {torch.float16: 2**-6, torch.bfloat16: 2**-4}
"""The same of outputs that pass through these types, whatever the scheme."""
_AGREEMENT_ROOM = 4
"""What perturbed runs do to an output, times this, is allowed, too: little is left of numbers that cancel out."""


def is_whole(output: Any) -> bool:
    """Whether an output has whole numbers, or none at all: it must be the same."""
    return output is None or not (output.is_floating_point() or output.is_complex())


def spread(tensor: Any) -> float:
    """How far the numbers reach: the larger of maximum minus minimum and largest magnitude; 0 for none."""
    numbers = reference.wide(tensor)
    numbers = numbers[torch.isfinite(numbers)]
    return float(max(numbers.max() - numbers.min(), numbers.abs().max())) if numbers.numel() else 0.0


def output_types(program: Any) -> list[Any]:
    """For each output the floating-point type with the fewest bits among the values that it is computed from.

    Args:
        program: exported, before lowering.
    """
    coarsest: dict[Any, Any] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        own = [value.dtype] if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else []
        found = [*own, *(coarsest[one] for one in node.all_input_nodes)]
        coarsest[node] = max(found, key=lambda one: torch.finfo(one).eps, default=torch.float32)
    count = len(program.graph_signature.user_outputs)
    last = next(one for one in program.graph.nodes if one.op == "output").args[0]
    return [coarsest.get(one, torch.float32) for one in (last[-count:] if count else ())]


def output_steps(program: Any) -> list[float | None]:
    """For each output of a quantized exported program: the step in which it is quantized, ``None`` when it is not."""
    result: list[float | None] = []
    node = next(one for one in program.graph.nodes if one.op == "output")
    count = len(program.graph_signature.user_outputs)
    for value in node.args[0][-count:] if count else ():
        last = source(value)
        step = last.args[1] if isinstance(last, torch.fx.Node) and is_dequantize(last) else None
        result.append(float(step) if isinstance(step, (int, float)) else None)
    return result


def inputs_quantized_directly(program: Any) -> bool:
    """Whether every quantized layer quantizes an input of the program itself, not something computed before."""
    given = set(program.graph_signature.user_inputs)
    for layer in layers(program):
        if layer.weight_quantized:
            dequantize = source(layer.node.args[0 if layer.kind != "addmm" else 1])
            quantize = source(dequantize.args[0])
            if source(quantize.args[0]).name not in given:
                return False
    return True


class _Flips(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
    """Runs a quantized graph and keeps the largest product of an activation's step and a weight."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.largest = 0.0

    def run_node(self, node: Any) -> Any:
        """The node's value, as the base class computes it."""
        result = super().run_node(node)
        position = weight_argument(node)
        if position is not None:
            activation = source(node.args[position - 1])
            if is_dequantize(activation):
                weight = self.env[node.args[position]]
                self.largest = max(self.largest, self._step(activation) * float(weight.abs().max()))
        return result

    def _step(self, dequantize: Any) -> float:
        """The largest scale of the integers that ``dequantize`` turns into floats."""
        for argument in dequantize.args[1:]:
            value = self.env[argument] if isinstance(argument, torch.fx.Node) else argument
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return float(value.abs().max())
            if isinstance(value, float):
                return abs(value)
        return 0.0


def _largest_flip(program: Any, inputs: Sequence[Any]) -> float:
    """The most that one flipped activation changes a layer's output: its step times the layer's largest weight.

    Args:
        program: quantized and exported, before lowering.
        inputs: those of the reference.
    """
    flips = _Flips(program.module())
    with torch.no_grad():
        flips.run(*inputs)
    return flips.largest


def _eight_bits(reach: float, because: str) -> Tolerance:
    return Tolerance(
        atol=reach / 127, rtol=0.0, why=f"{because}: one step of 8 bits over the output's spread ({reach:.4g})"
    )


def _static(reach: float, step: float | None) -> Tolerance:
    if step is None:
        return _eight_bits(reach, "the output is computed in float from int8 layers")
    # A step is a float32 product: one more part in 10,000 for its own rounding.
    return Tolerance(atol=step * 1.0001, rtol=0.0, why=f"one quantization step of the output ({step:.4g})")


def _float(reach: float, because: str) -> Tolerance:
    share = _SHARE * reach
    figure = f"{_FP32:g}" if share <= _FP32 else f"{_SHARE:g} of the output's spread ({reach:.4g})"
    return Tolerance(atol=max(_FP32, share), rtol=_FP32, why=f"{because}: {figure}")


def _small(reach: float) -> float:
    """What rounding float32 may do to an output: `_FP32`, but not more than that part of an output below 1."""
    return max(_SHARE * reach, _FP32 * min(1.0, reach))


def _flipped(reach: float, flip: float) -> Tolerance:
    because = "dynamic int8 of the inputs themselves"
    rounding = _float(reach, f"{because}: the integers agree, the float32 scales round")
    if not flip:
        return rounding
    why = f"{because}: one may round to the next integer ({flip:.4g})"
    return Tolerance(atol=rounding.atol + flip, rtol=rounding.rtol, why=why)


def _one(output: Any, scheme: Scheme, step: float | None, shallow: bool, flip: float) -> Tolerance:
    reach = spread(output)
    if is_whole(output):
        why = "none" if output is None else "whole numbers must be the same"
        return Tolerance(atol=0.0, rtol=0.0, why=why)
    if output.dtype in _SIXTEEN or scheme.method == "half":
        share, why = _SIXTEEN.get(output.dtype, _SIXTEEN[torch.float16])
        return Tolerance(atol=reach * share, rtol=0.0, why=f"16-bit float: {why} of the spread ({reach:.4g})")
    if scheme.method == "pt2e":
        return _static(reach, step)
    if not scheme.dynamic:
        return _float(reach, "fp32: the order of additions differs between CPUs")
    if shallow:
        return _flipped(reach, flip)
    return _eight_bits(reach, "dynamic int8 in inner layers, where float32 rounding can flip an activation")


def tolerances(
    program: Any,
    scheme: Scheme,
    outputs: Sequence[Any],
    inputs: Sequence[Any] = (),
    measured: Sequence[Measured] = (),
    same_arithmetic: bool = True,
) -> tuple[Tolerance, ...]:
    """One tolerance an output.

    Args:
        program: the exported program in its scheme, before lowering.
        outputs: the reference's.
        inputs: the reference's; without them, the tolerance of dynamic int8 has no room for a flipped activation.
        measured: what `models.reference.perturbing.measure` has found.
        same_arithmetic: the reference's engine quantizes as devices do; PyTorch does not.
    """
    steps = output_steps(program) if scheme.method == "pt2e" else []
    shallow = scheme.dynamic and inputs_quantized_directly(program)
    flip = _largest_flip(program, inputs) if shallow and inputs else 0.0
    found = of_outputs(scheme, outputs, steps, shallow=shallow, flip=flip)
    if not measured:
        return found
    return tuple(
        _as_measured(one, scheme, output, moves, shallow, same_arithmetic)
        for one, output, moves in zip(found, outputs, measured, strict=True)
    )


def _as_measured(
    plain: Tolerance, scheme: Scheme, output: Any, moves: Measured, shallow: bool, same_arithmetic: bool
) -> Tolerance:
    """What was measured in place of a rule, or beside it.

    Single elements may move `_ROOM` times as far as in the perturbed runs. So may the root mean square and the gain: a
    layer that is wrong by one part in a hundred moves many elements a little, most of them in one direction.
    """
    if is_whole(output):
        return plain
    half = scheme.method == "half" or output.dtype in _SIXTEEN
    if scheme.method == "none" and not half:
        reach = spread(output)
        if reach < 1:  # 1e-5 would hide anything in outputs of 1e-5
            why = f"fp32: the order of additions differs between CPUs: {_FP32:g} of the output's spread ({reach:.4g})"
            plain = plain.model_copy(update={"atol": _small(reach), "why": why})
        wider = _ROOM * moves.noise.largest
        if wider <= plain.atol:
            return plain
        why = f"{_ROOM} times what rounding in another order did in {RUNS} runs in PyTorch ({moves.noise.largest:.2g})"
        return Tolerance(atol=wider, rtol=plain.rtol, why=f"fp32: {why}")
    if not same_arithmetic:
        return plain
    noise, flip = moves.noise, moves.flip
    # Whatever is measured, outputs themselves are rounded: float32's share, or the last place of 16 bits.
    least = float(torch.finfo(output.dtype).eps) * spread(output) if half else _small(spread(output))
    if half:
        # Over the zoo, an emulated Cortex-A76 moves outputs by 0.7 (MobileNetV2) to 1.1 times (one layer) this rms.
        atol, why = max(plain.atol, noise.largest), plain.why
    else:
        # Outputs in steps of their own move by whole ones, and flips of inputs are bounded: no room is needed.
        flips_allowed = 1 if scheme.method == "pt2e" or shallow else _ROOM
        measured = max(_ROOM * noise.largest, 1.0001 * flips_allowed * flip.largest)
        atol = max(measured, least, plain.atol if scheme.method == "pt2e" or shallow else 0.0)
        why = plain.why if atol > measured or atol == plain.atol else _found(scheme, moves, flips_allowed)
    rms = max(_ROOM * max(noise.rms, flip.rms), least)
    gain = max(_ROOM * max(noise.gain, flip.gain), _GAIN)
    return Tolerance(atol=atol, rtol=plain.rtol, why=why, rms=rms, gain=gain)


def _found(scheme: Scheme, moves: Measured, flips_allowed: int) -> str:
    """``dynamic int8: one rounding flipped before blocks.3 moves the output by 0.006, and twice that is allowed``."""
    kind = "dynamic int8" if scheme.dynamic else "int8"
    noise, flip = moves.noise.largest, moves.flip.largest
    if flips_allowed * flip >= _ROOM * noise:
        allowed = "and twice that is allowed" if flips_allowed > 1 else "which is allowed"
        return f"{kind}: one rounding flipped before {moves.where} moves the output by {flip:.2g}, {allowed}"
    return (
        f"{kind}: rounding every layer a little differently, as another processor does, moved the output by "
        f"{noise:.2g} in {RUNS} runs in PyTorch, and twice that is allowed"
    )


def of_outputs(
    scheme: Scheme, outputs: Sequence[Any], steps: Sequence[float | None], *, shallow: bool = False, flip: float = 0.0
) -> tuple[Tolerance, ...]:
    """One tolerance an output.

    Args:
        steps: in which each output is quantized; ``None``, or none at all, where it is not.
        shallow: whether only inputs of the program are quantized dynamically.
        flip: what one of them changes that rounds to the next integer.
    """
    padded = [*steps, *([None] * (len(outputs) - len(steps)))]
    return tuple(_one(output, scheme, step, shallow, flip) for output, step in zip(outputs, padded, strict=True))


def widest(all_of_them: Sequence[Tolerance]) -> Tolerance:
    """The widest tolerance, with the widest limits of all elements together; without what float64 gives one output."""
    one = max(all_of_them, key=lambda one: (one.atol, one.rtol), default=Tolerance(atol=0.0, rtol=0.0, why="no output"))

    def most(name: str) -> float | None:
        limits = [getattr(other, name) for other in all_of_them if other.atol or other.rtol]  # others are exact
        return None if None in limits else max(limits, default=None)

    rms, gain = most("rms"), most("gain")
    return one.model_copy(update={"rms": rms, "gain": gain, "exact": None})


def agreement(
    scheme: Scheme,
    model: Sequence[Any],
    program: Sequence[Any],
    *,
    types: Sequence[Any] = (),
    measured: Sequence[Measured] = (),
    what: str = "the model in PyTorch",
) -> Agreement:
    """Compare the outputs of the float model in PyTorch with the program's: each has a limit, and the worst one counts.

    A different number of outputs, or another shape, is an infinite difference.

    Args:
        types: of the numbers that outputs are computed from (`output_types`); without them, of the outputs themselves.
        measured: what `models.reference.perturbing.measure` has found.
        what: is compared with the program.
    """
    found = [
        _agreement(
            scheme, want, got, types[index] if index < len(types) else getattr(want, "dtype", None),
            _AGREEMENT_ROOM * measured[index].noise.largest if index < len(measured) else 0.0,
            (f"output{index} of " if len(model) > 1 else "") + what, max(map(spread, model)),
        )
        for index, (want, got) in enumerate(zip(model, program, strict=False))
    ]  # fmt: skip
    if len(model) != len(program):
        why = f"{what} has {len(model)} outputs, the program {len(program)}"
        found = [Agreement(max_abs=ENDLESS, limit=_AGREEMENT["none"], why=why)]
    return max(found, key=lambda one: one.max_abs / one.limit)


def _agreement(scheme: Scheme, want: Any, got: Any, kind: Any, noise: float, what: str, together: float) -> Agreement:
    share = _AGREEMENT[scheme.weight_bits or scheme.method]
    share = max(share, _ROUNDED.get(kind, 0.0))
    # Rounding chooses other whole numbers: where it may, they are compared roughly, by the reach of all outputs.
    reach = together if is_whole(want) and scheme.method != "none" else spread(want)
    limit = share * max(reach, 1e-6)
    allowed = f"{share:.3g} of its spread ({reach:.4g}) is allowed"
    if noise > limit:
        limit, allowed = noise, f"{_AGREEMENT_ROOM} times what rounding does to it in PyTorch is allowed"
    why = f"{what}, as it was before {scheme.name}, against the program; {allowed}"
    return Agreement(max_abs=farthest(want, got), limit=limit, why=why)


def doubts(found: Agreement, outputs: Sequence[Any]) -> list[str]:
    """Warnings of a program that is too far from the model, and of outputs that are no finite numbers."""
    warnings = []
    if found.max_abs > found.limit:
        warnings.append(
            f"the program is {found.max_abs:.4g} away from the model, more than {found.limit:.4g}: {found.why}"
        )
    if any(bool((~torch.isfinite(reference.wide(one))).any()) for one in outputs):
        warnings.append("an output holds infinities or NaN")
    return warnings


def farthest(want: Any, got: Any) -> float:
    """The largest difference of two outputs; 1e308 for an infinite one, for NaN on one side and for other shapes."""
    one, other = reference.wide(want), reference.wide(got)
    if one.shape != other.shape or (want is None) != (got is None):
        return ENDLESS
    difference = (one - other).abs()
    difference[(one == other) | (one.isnan() & other.isnan())] = 0.0  # equal infinities
    return float(difference.nan_to_num(ENDLESS, ENDLESS).clamp(max=ENDLESS).max()) if one.numel() else 0.0
