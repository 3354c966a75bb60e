"""Every kernel's cases as programs: hypothesis draws them from a seed, and many go into one export."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from models.lowering import shortcuts
from verify.sound.making import made, operators

Draw = Callable[[st.SearchStrategy[Any]], Any]
Call = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
"""A function of tensors, and the tensors."""

FLOATS = (torch.float32, torch.float32, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ALL = (*FLOATS, *INTEGERS, torch.bool)

SIZES = st.integers(1, 5)
LONG = st.sampled_from([1, 2, 3, 7, 17, 300, 1300])
"""Some longer than the blocks that kernels work in."""


@dataclass(frozen=True)
class Case:
    """One use of a kernel."""

    kernel: str
    """As it is registered: ``aten::add.out``."""
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


def shape(draw: Draw, least: int = 1, most: int = 4) -> tuple[int, ...]:
    """Of ``least`` to ``most`` dimensions, seldom a long one."""
    rank = draw(st.integers(least, most))
    return tuple(draw(LONG if rank <= 2 else SIZES) for _ in range(rank))


def broadcast(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that go together: sizes of 1 and missing dimensions on either side."""
    whole = shape(draw)
    sides = []
    for _ in range(2):
        cut = whole[draw(st.integers(0, len(whole))) :]
        sides.append(tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in cut))
    return sides[0], sides[1]


def dtype(draw: Draw, of: Sequence[torch.dtype]) -> torch.dtype:
    """One of ``of``."""
    return draw(st.sampled_from(of))


def tensor(draw: Draw, shape: Sequence[int], dtype: torch.dtype, low: float = -3, high: float = 3) -> torch.Tensor:
    """Numbers between ``low`` and ``high`` from a seed that hypothesis draws."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator) > 0
    if dtype.is_floating_point:
        # Away from both ends, so that rounding to half precision does not leave the range.
        found = torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * (high - low) * 0.998
        return (found + low + (high - low) * 0.001).to(dtype)
    first = max(low, 0) if dtype == torch.uint8 else low
    return torch.randint(round(first), round(high) + 1, tuple(shape), generator=generator).to(dtype)


def dim_of(draw: Draw, x: torch.Tensor) -> int:
    """A dimension, from either end."""
    return int(draw(st.integers(-x.dim(), x.dim() - 1)))


def dims_of(draw: Draw, x: torch.Tensor) -> list[int]:
    """At least one dimension, each once."""
    return sorted(draw(st.sets(st.integers(0, x.dim() - 1), min_size=1)))


Maker = Callable[[Draw], Call]
Arguments = Callable[[Draw, torch.Tensor], tuple[Any, ...]]


def of_one(
    op: Any,
    arguments: Arguments = lambda draw, x: (),
    of: Sequence[torch.dtype] = ALL,
    dims: tuple[int, int] = (1, 4),
    edges: tuple[float, float] = (-3, 3),
    **settings: Any,
) -> Maker:
    """Uses of an operator of one tensor.

    Args:
        arguments: draws what it takes besides the tensor.
        of, dims, edges: the tensor's types, how many dimensions it has, and its numbers.
    """

    def make(draw: Draw) -> Call:
        x = tensor(draw, shape(draw, *dims), dtype(draw, of), *edges)
        given = arguments(draw, x)
        return lambda x: op(x, *given, **settings), (x,)

    return make


FAMILIES = {"elementwise": 3, "lines": 3, "shapes": 1, "images": 1}
"""Modules of cases, ``verify/operators/<family>.py``, and how many uses of each kernel a program has."""


@dataclass(frozen=True)
class Batch:
    """One program of many operators."""

    program: bytes
    inputs: tuple[torch.Tensor, ...]
    cases: tuple[Case, ...]
    results: tuple[tuple[torch.Tensor, ...], ...]
    """ATen's, of each case."""
    operators: tuple[str, ...]
    """In the program, by the names of their kernels."""


def makers(family: str) -> dict[str, Maker]:
    """Kernel -> what draws a use of it."""
    found: dict[str, Maker] = importlib.import_module(f"verify.operators.{family}").MAKERS
    return found


def draw(family: str, number: int) -> list[Case]:
    """Uses of each kernel of a family, from the seed ``number``."""
    drawn: list[list[Case]] = []
    examples = FAMILIES[family]

    # The first example that hypothesis tries is always the simplest one: it is left out.
    @seed(number)
    @settings(
        max_examples=examples + 1, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        drawn.append([Case(kernel, *make(data.draw)) for kernel, make in makers(family).items()])

    torch.manual_seed(number)
    collect()
    return [case for example in drawn[1 : examples + 1] for case in example]


def flat(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of an operator's result."""
    return (value,) if isinstance(value, torch.Tensor) else tuple(one for one in value if one is not None)


@shortcuts.in_torch()
def portable(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], *, preserve: bool = True
) -> tuple[bytes, tuple[str, ...]]:
    """A function's program without delegates, and the operators in it by the names of their kernels.

    Args:
        preserve: keep ATen's operators as they are called; or as the exporter decomposes them.
    """
    from executorch.exir import EdgeCompileConfig, to_edge

    module = made(lambda _, *given: function(*given))
    exported = torch.export.export(module, tuple(inputs), strict=False)
    called = {node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    kept = sorted((op for op in called if op.namespace == "aten"), key=str) if preserve else []
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False, preserve_ops=kept))
    program = edge.to_executorch()
    return bytes(program.buffer), operators(program)


def export(cases: Sequence[Case]) -> Batch:
    """One program of all cases, one after the other; their results in one tuple."""

    def together(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: list[torch.Tensor] = []
        at = 0
        for case in cases:
            found += flat(case.function(*inputs[at : at + len(case.inputs)]))
            at += len(case.inputs)
        return tuple(found)

    inputs = tuple(one for case in cases for one in case.inputs)
    # An operator may write to what it is given.
    results = tuple(flat(case.function(*(one.clone() for one in case.inputs))) for case in cases)
    program, names = portable(together, inputs)
    return Batch(program, inputs, tuple(cases), results, names)
