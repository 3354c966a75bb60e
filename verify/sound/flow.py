"""Branches, loops and structures; and programs that keep something, write in place, or have several methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.map import map as each
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from verify.sound.making import Function, Program, Run, input_written, leaves, lower, made, settings, sound


def _nested(m: Any, x: Any) -> Any:
    def inner(y: Any) -> Any:
        return torch.cond(y.max() > 1, lambda z: z - 1, lambda z: z.sin(), (y,))

    return torch.cond(x.sum() > 0, inner, lambda y: y.cos(), (x,))


def _several(m: Any, x: Any) -> Any:
    first, second = torch.cond(x[0, 0] > 0, lambda y: (y + 1, y.sum(0)), lambda y: (y.abs(), y.amax(0)), (x,))
    return second, first * 2


def _carried(m: Any, start: Any, rows: Any) -> Any:
    def step(carried: Any, row: Any) -> Any:
        following = (carried * 0.5 + row).tanh()
        return following, following * 2

    return scan(step, start, rows)


def _carried_two(m: Any, start: Any, rows: Any) -> Any:
    def step(carried: Any, row: Any) -> Any:
        total, most = carried
        return (total + row, torch.maximum(most, row)), (total * row).sum()

    return scan(step, (start, start - 1), rows)


def _maybe(m: Any, x: Any, bias: Any, scale: Any) -> Any:
    y = x if bias is None else x + bias
    return y if scale is None else y * scale


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
    "branch": (lambda m, x: torch.cond(x.sum() > 0, lambda y: y * 2.0, lambda y: y + 1.0, (x,)), _x),
    "branch-of-layers": (lambda m, flag, x: torch.cond(flag, m.one, m.other, (x,)), _flagged),
    "branches-in-branches": (_nested, _x),
    "branch-of-several": (_several, _x),
    "branch-of-views": (
        lambda m, x: torch.cond(x.sum() > 0, lambda y: y.view(-1) + 1, lambda y: y.view(-1) * 2, (x * 2,)), _x
    ),
    "each": (
        lambda m, rows, y: each(lambda row, other: row * other + row.sum(), rows, y),
        lambda: ((torch.randn(ROWS), torch.randn(3)),),
    ),
    "each-view": (lambda m, rows: each(lambda row: row.view(3, 1) @ row.view(1, 3), rows), _rows),
    "each-layer": (lambda m, rows: each(lambda row: m.one(row).relu(), rows) + 1, _rows),
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
    "number-given": (lambda m, x, factor: x * factor, lambda: ((torch.randn(X), 3),)),
    "float-given": (lambda m, x, factor: x * factor, lambda: ((torch.randn(X), 2.5),)),
    "flag-given": (lambda m, x, flag: x.sin() if flag else x.cos(), lambda: ((torch.randn(X), True),)),
    "number-as-a-result": (lambda m, x: (x + 1, 7, 2.5, True), _one),
    "list-given": (lambda m, some: some[0] + some[1] * 2, lambda: (([torch.randn(X), torch.randn(X)],),)),
    "dictionary-given": (lambda m, some: some["b"] - some["a"], lambda: ((dict.fromkeys("ab", torch.randn(X)),),)),
    "input-as-a-result": (lambda m, x: (x, x * 2), _one),
    "input-twice-as-a-result": (lambda m, x: (x, x), _one),
    "result-twice": (lambda m, x: ((y := x * 2), y, y + 1), _one),
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

    def by_size(m: Any, x: Any) -> Any:
        return torch.cond(x.shape[0] > 4, lambda y: y.sin(), lambda y: y.cos(), (x,))

    return sound(made(by_size), *given, sizes=({0: Dim("n", min=1, max=8)},))


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


def _added(m: Any, x: Any) -> Any:
    m.total.add_(x)
    return m.total * 1


def _counted(m: Any, x: Any) -> Any:
    m.count += 1
    return x * m.count


def _average(m: Any, x: Any) -> Any:
    m.mean.copy_(m.mean * 0.9 + x.mean(0) * 0.1)
    return x - m.mean


def _pushed(m: Any, x: Any) -> Any:
    m.ring.copy_(torch.cat([m.ring[2:], x]))
    return m.ring.mean(0)


def _put(m: Any, x: Any) -> Any:
    m.rows[m.place] = x
    m.place.copy_((m.place + 1) % 4)
    return m.rows.sum(0), m.place * 1


def _sliced(m: Any, x: Any) -> Any:
    m.rows[1:3] = x
    return m.rows + 1


def _column(m: Any, x: Any) -> Any:
    m.rows[:, 0] = x[0]
    return m.rows.T @ m.rows


def _viewed(m: Any, x: Any) -> Any:
    m.rows.view(-1)[2:6] = x.view(-1)[:4]
    return m.rows * 2


def _scattered(m: Any, x: Any) -> Any:
    m.rows.index_put_((torch.tensor([0, 2]),), x, accumulate=True)
    return m.rows * 1


def _cleared(m: Any, x: Any) -> Any:
    seen = m.rows + x[:1]
    m.rows.zero_()
    m.rows[0].fill_(2.0)
    return seen, m.rows * 1


def _both(m: Any, x: Any) -> Any:
    before = m.total.clone()
    m.total.copy_(x[0])
    return before, m.total.clone(), x


def _recurrent(m: Any, x: Any) -> Any:
    m.hidden.copy_(m.cell(x[:1], m.hidden))
    return m.out(m.hidden)


def _switched(m: Any, x: Any) -> Any:
    m.on.copy_(~m.on)
    return torch.where(m.on, x, -x)


_KEPT: dict[str, tuple[Any, dict[str, Callable[[], Any]]]] = {
    "added": (_added, {"total": lambda: torch.ones(2, 3)}),
    "counted": (_counted, {"count": lambda: torch.zeros(1, dtype=torch.int64)}),
    "average": (_average, {"mean": lambda: torch.zeros(3)}),
    "pushed": (_pushed, {"ring": lambda: torch.zeros(5, 3)}),
    "written": (_put, {"rows": lambda: torch.zeros(4, 2, 3), "place": lambda: torch.zeros(1, dtype=torch.int64)}),
    "sliced": (_sliced, {"rows": lambda: torch.full((4, 3), 0.5)}),
    "column": (_column, {"rows": lambda: torch.ones(3, 2)}),
    "viewed": (_viewed, {"rows": lambda: torch.zeros(4, 3)}),
    "scattered": (_scattered, {"rows": lambda: torch.zeros(4, 3)}),
    "cleared": (_cleared, {"rows": lambda: torch.ones(3, 3)}),
    "before-and-after": (_both, {"total": lambda: torch.zeros(3)}),
    "recurrent": (
        _recurrent,
        {"hidden": lambda: torch.zeros(1, 4), "cell": lambda: nn.GRUCell(3, 4), "out": lambda: nn.Linear(4, 2)},
    ),
    "switched": (_switched, {"on": lambda: torch.tensor([True])}),
}


def _keeping(kind: str, *, delegate: bool = False, **options: Any) -> Program:
    function, layers = _KEPT[kind]
    made_layers = {name: make() for name, make in layers.items()}
    names = [name for name, value in made_layers.items() if isinstance(value, torch.Tensor)]
    module = made(function, **made_layers)
    return sound(
        module, (torch.randn(2, 3),), delegate=delegate, config=settings(state=names, **options), executions=(1, 2, 5)
    )


def _in_place(m: Any, x: Any) -> Any:
    y = x * 2
    y.add_(1).mul_(x)
    y[0] = 3.0
    return y.clamp_(-1, 4)


def _input_written(m: Any, x: Any) -> Any:
    x.add_(1)
    return x * 2


def _input_written_in_a_view(m: Any, x: Any) -> Any:
    x.view(-1)[:2] = 7.0
    return x.sum(1)


class _Coder(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(6, 3), nn.Linear(3, 6)


def _methods(*, delegate: bool) -> Program:
    """Two ways of one network, and both in a row."""
    coder = _Coder().requires_grad_(False)
    ways: dict[str, tuple[Any, Any]] = {
        "encode": (made(lambda m, x: torch.relu(m.coder.down(x)), coder=coder), torch.randn(2, 6)),
        "decode": (made(lambda m, x: m.coder.up(x), coder=coder), torch.randn(2, 3)),
        "forward": (made(lambda m, x: m.coder.up(torch.relu(m.coder.down(x))), coder=coder), torch.randn(2, 6)),
    }
    exported = {name: torch.export.export(module, (x,), strict=False) for name, (module, x) in ways.items()}
    runs = tuple(Run((x,), leaves(module(x)), method=name) for name, (module, x) in ways.items())
    return lower(exported, runs, delegate=delegate)


STATE: dict[str, Callable[[], Program]] = {
    **{kind: partial(_keeping, kind) for kind in _KEPT},
    **{f"{kind}-in-place": partial(_keeping, kind, run_reinplace_pass=True) for kind in _KEPT},
    **{
        f"{kind}-unplanned": partial(_keeping, kind, inputs=False, outputs=False)
        for kind in ("added", "written", "viewed", "recurrent", "before-and-after")
    },
    **{f"{kind}-delegated": partial(_keeping, kind, delegate=True) for kind in ("average", "recurrent", "added")},
    "in-place": lambda: sound(made(_in_place), (torch.randn(2, 3),), executions=(1, 2)),
    "input-written": lambda: input_written(made(_input_written), torch.randn(2, 3)),
    "input-written-in-a-view": lambda: input_written(made(_input_written_in_a_view), torch.randn(2, 3)),
    "methods": partial(_methods, delegate=False),
    "methods-delegated": partial(_methods, delegate=True),
}
