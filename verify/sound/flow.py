"""Branches and loops, ``None`` among inputs and outputs, numbers and structures among them, results that are inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from verify.sound.making import Function, Program, leaves, made, sound


def _by_sum(m: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y * 2.0, lambda y: y + 1.0, (x,))


def _by_flag(m: Any, flag: Any, x: Any) -> Any:
    return torch.cond(flag, m.one, m.other, (x,))


def _nested(m: Any, x: Any) -> Any:
    def inner(y: Any) -> Any:
        return torch.cond(y.max() > 1, lambda z: z - 1, lambda z: z.sin(), (y,))

    return torch.cond(x.sum() > 0, inner, lambda y: y.cos(), (x,))


def _several(m: Any, x: Any) -> Any:
    first, second = torch.cond(x[0, 0] > 0, lambda y: (y + 1, y.sum(0)), lambda y: (y.abs(), y.amax(0)), (x,))
    return second, first * 2


def _by_size(m: Any, x: Any) -> Any:
    return torch.cond(x.shape[0] > 4, lambda y: y.sin(), lambda y: y.cos(), (x,))


def _after_a_view(m: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y.view(-1) + 1, lambda y: y.view(-1) * 2, (x * 2,))


def _each(m: Any, rows: Any, y: Any) -> Any:
    from torch._higher_order_ops.map import map as each

    return each(lambda row, other: row * other + row.sum(), rows, y)


def _each_view(m: Any, rows: Any) -> Any:
    from torch._higher_order_ops.map import map as each

    return each(lambda row: row.view(3, 1) @ row.view(1, 3), rows)


def _each_layer(m: Any, rows: Any) -> Any:
    from torch._higher_order_ops.map import map as each

    return each(lambda row: m.one(row).relu(), rows) + 1


def _carried(m: Any, start: Any, rows: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    def step(carried: Any, row: Any) -> Any:
        following = (carried * 0.5 + row).tanh()
        return following, following * 2

    return scan(step, start, rows)


def _carried_two(m: Any, start: Any, rows: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    def step(carried: Any, row: Any) -> Any:
        total, most = carried
        return (total + row, torch.maximum(most, row)), (total * row).sum()

    return scan(step, (start, start - 1), rows)


def _maybe(m: Any, x: Any, bias: Any, scale: Any) -> Any:
    y = x if bias is None else x + bias
    return y if scale is None else y * scale


def _number(m: Any, x: Any, factor: Any) -> Any:
    return x * factor


def _flag(m: Any, x: Any, flag: Any) -> Any:
    return x.sin() if flag else x.cos()


def _twice(m: Any, x: Any) -> Any:
    y = x * 2
    return y, y, y + 1


X, ROWS = (2, 3), (4, 3)
_Given = Callable[[], Sequence[tuple[Any, ...]]]


def _x() -> Sequence[tuple[Any, ...]]:
    x = torch.rand(2, 3) + 0.1
    return (x,), (-x,), (x * 5,)


def _flagged() -> Sequence[tuple[Any, ...]]:
    x = torch.randn(X)
    return (torch.tensor(True), x), (torch.tensor(False), x)


def _one() -> Sequence[tuple[Any, ...]]:
    return ((torch.randn(X),),)


def _rows() -> Sequence[tuple[Any, ...]]:
    return ((torch.randn(ROWS),),)


def _start_and_rows() -> Sequence[tuple[Any, ...]]:
    return ((torch.randn(3), torch.randn(ROWS)),)


_KINDS: dict[str, tuple[Function, _Given]] = {
    "branch": (_by_sum, _x),
    "branch-of-layers": (_by_flag, _flagged),
    "branches-in-branches": (_nested, _x),
    "branch-of-several": (_several, _x),
    "branch-of-views": (_after_a_view, _x),
    "each": (_each, lambda: ((torch.randn(ROWS), torch.randn(3)),)),
    "each-view": (_each_view, _rows),
    "each-layer": (_each_layer, _rows),
    "carried": (_carried, _start_and_rows),
    "carried-two": (_carried_two, _start_and_rows),
    "none-given": (_maybe, lambda: ((torch.randn(X), None, torch.randn(3)),)),
    "none-given-last": (_maybe, lambda: ((torch.randn(X), torch.randn(3), None),)),
    "two-nones-given": (_maybe, lambda: ((torch.randn(X), None, None),)),
    "none-first": (lambda m, bias, x: _maybe(m, x, bias, None), lambda: ((None, torch.randn(X)),)),
    "none-as-a-result": (lambda m, x: (x * 2, None), _one),
    "none-between-results": (lambda m, x: (None, x + 1, None, x.sum()), _one),
    "none-in-a-dictionary": (lambda m, x: {"a": None, "b": x.exp()}, _one),
    "weights-not-needed": (lambda m, x: m.heads(x, x, x, need_weights=False), lambda: ((torch.randn(1, 4, 6),),)),
    "number-given": (_number, lambda: ((torch.randn(X), 3),)),
    "float-given": (_number, lambda: ((torch.randn(X), 2.5),)),
    "flag-given": (_flag, lambda: ((torch.randn(X), True),)),
    "number-as-a-result": (lambda m, x: (x + 1, 7, 2.5, True), _one),
    "list-given": (lambda m, some: some[0] + some[1] * 2, lambda: (([torch.randn(X), torch.randn(X)],),)),
    "dictionary-given": (lambda m, some: some["b"] - some["a"], lambda: ((dict.fromkeys("ab", torch.randn(X)),),)),
    "input-as-a-result": (lambda m, x: (x, x * 2), _one),
    "input-twice-as-a-result": (lambda m, x: (x, x), _one),
    "result-twice": (_twice, _one),
    "constant-as-a-result": (lambda m, x: (m.table, x + 1), _one),
    "view-of-a-constant": (lambda m, x: (m.table.view(-1), x + m.table), _one),
    "only-an-input": (lambda m, x: x, _one),
    "only-a-constant": (lambda m, x: m.table + 0, _one),
    "nothing-given": (lambda m: m.table * 2, lambda: ((),)),
    "input-not-read": (lambda m, x, y: x + 1, lambda: ((torch.randn(X), torch.randn(5)),)),
    "no-result": (lambda m, x: (), _one),
}  # fmt: skip
# A linear layer in a branch is more than the lowering to XNNPACK takes.
_DELEGATED = ("none-given", "none-as-a-result", "input-as-a-result", "list-given")


def _layers() -> dict[str, Any]:
    return {
        "one": nn.Linear(3, 4),
        "other": nn.Linear(3, 4),
        "heads": nn.MultiheadAttention(6, 2, batch_first=True),
        "table": torch.arange(6.0).reshape(X),
    }


def _program(kind: str, *, delegate: bool) -> Program:
    function, given = _KINDS[kind]
    program = sound(made(function, **_layers()), *given(), delegate=delegate, executions=(1, 3))
    # A runtime takes the leaves of lists and dictionaries.
    return replace(program, runs=tuple(replace(run, inputs=leaves(run.inputs)) for run in program.runs))


def _sized() -> Program:
    given = [(torch.randn(count, 3),) for count in (4, 1, 5, 8)]
    return sound(made(_by_size), *given, sizes=({0: Dim("n", min=1, max=8)},))


def _chosen() -> Program:
    """As many results as the numbers say."""

    def function(m: Any, x: Any) -> Any:
        places = torch.nonzero(x > 0)
        torch._check(places.shape[0] <= 12)
        return places, places * 2

    x = torch.randn(3, 4)
    return sound(made(function), (x,), (-x,), (torch.zeros(3, 4),), (torch.ones(3, 4),))


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{kind: partial(_program, kind, delegate=False) for kind in _KINDS},
    **{f"{kind}-delegated": partial(_program, kind, delegate=True) for kind in _DELEGATED},
    "branch-by-size": _sized,
    "chosen": _chosen,
}
