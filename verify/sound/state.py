"""Programs that keep something from one execution to the next, write in place, or have several methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from verify.sound.making import Program, Run, input_written, leaves, lower, made, settings, sound


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


def _written(m: Any, x: Any) -> Any:
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


_KINDS: dict[str, tuple[Any, dict[str, Callable[[], Any]]]] = {
    "added": (_added, {"total": lambda: torch.ones(2, 3)}),
    "counted": (_counted, {"count": lambda: torch.zeros(1, dtype=torch.int64)}),
    "average": (_average, {"mean": lambda: torch.zeros(3)}),
    "pushed": (_pushed, {"ring": lambda: torch.zeros(5, 3)}),
    "written": (_written, {"rows": lambda: torch.zeros(4, 2, 3), "place": lambda: torch.zeros(1, dtype=torch.int64)}),
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


def _program(kind: str, *, delegate: bool = False, **options: Any) -> Program:
    function, layers = _KINDS[kind]
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


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{kind: partial(_program, kind) for kind in _KINDS},
    **{f"{kind}-in-place": partial(_program, kind, run_reinplace_pass=True) for kind in _KINDS},
    **{
        f"{kind}-unplanned": partial(_program, kind, inputs=False, outputs=False)
        for kind in ("added", "written", "viewed", "recurrent", "before-and-after")
    },
    **{f"{kind}-delegated": partial(_program, kind, delegate=True) for kind in ("average", "recurrent", "added")},
    "in-place": lambda: sound(made(_in_place), (torch.randn(2, 3),), executions=(1, 2)),
    "input-written": lambda: input_written(made(_input_written), torch.randn(2, 3)),
    "input-written-in-a-view": lambda: input_written(made(_input_written_in_a_view), torch.randn(2, 3)),
    "methods": partial(_methods, delegate=False),
    "methods-delegated": partial(_methods, delegate=True),
}
