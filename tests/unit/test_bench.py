"""What the benches show: turns, ratios and overheads, marks where an aim is missed, and what is kept for the docs."""

from __future__ import annotations

from typing import Any

import pytest

from commands.own import Bench
from verify.bench import forward


def _row(c: list[float], module: list[float]) -> dict[str, Any]:
    times = {"c": 500.0, "cpp": 600.0, "execute": 450.0, "module": 1000.0, "module_execute": 900.0}
    return {
        "program": "linear",
        "threads": 1,
        "ns": times,
        "overhead_ns": {"c": c, "cpp": [60.0, 61.0], "module": module},
    }


@pytest.mark.parametrize(("load", "kept"), [(0.1, True), (3.0, False)])
def test_figures_of_a_busy_machine_are_not_kept(
    load: float, kept: bool, monkeypatch: pytest.MonkeyPatch, empty_tables: None
) -> None:
    result = {"rounds": 1, "executions": 2, "machine": "x", "geometric": {"c": 0.5, "cpp": 0.6}}
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(forward, "subjects", list)
    monkeypatch.setattr(forward, "build", lambda folder: folder)
    monkeypatch.setattr(forward, "measure", lambda *_: {**result, "rows": [_row([50.0], [100.0])]})
    forward.run(Bench(what="forward", runs=1, json=True, update=True))
    assert ("| linear | 1 | 0.50 µs |" in forward.FORWARD.text()) is kept
