"""What the benches show: turns, ratios and overheads, marks where an aim is missed, and what is kept for the docs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commands.own import Bench
from core.formats.bundle import Bundle
from verify.bench import forward, measuring, operators
from verify.bench.cases import Case
from verify.bench.measuring import Subject


def test_engines_take_turns_and_a_ratio_above_the_aim_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[str, int, int]] = []

    def run(case: Case, threads: int, executions: int, warmup: int = 3) -> list[float]:
        turns.append((case.engine, threads, executions))
        found = [1.0 if case.engine == "lean" else 0.5] * executions
        case.load.append(1.0)
        case.latency += found
        case.rss.append(1)
        return found

    monkeypatch.setattr(Case, "run", run)
    lean, upstream = (
        cast("Bundle", SimpleNamespace(manifest=SimpleNamespace(engine=name))) for name in ("lean", "executorch")
    )
    seen = measuring.measure((lean, upstream), Subject("mm", tmp_path / "mm.pte", ()), 3)
    # As often as fits into the time, by the faster engine.
    assert turns[:2] == [("lean", 1, 2), ("executorch", 1, 2)]
    assert [{engine for engine, *_ in turns[at : at + 2]} for at in (2, 4, 6)] == [{"lean", "executorch"}] * 3
    assert {executions for *_, executions in turns[2:]} == {80}
    assert operators.lines({"mm": "2x3"}, {"mm": seen}) == [["mm", "2x3", "1,000.0 µs", "500.0 µs", "2.00 (!)"]]
    failed = operators.lines({"mm": "2x3"}, {"mm": measuring.Measured(error="no kernel")})
    assert failed == [["mm", "2x3", "no kernel", "", ""]]


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
