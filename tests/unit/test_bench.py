"""What the benches show: turns, ratios and overheads, marks where an aim is missed, and what is kept for the docs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commands.own import Bench
from core.errors import UsageError
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
    monkeypatch.setattr(measuring, "runner_here", lambda bundle: [])
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


def test_figures_of_some_operators_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.environment.ensure_export", lambda: None)
    with pytest.raises(UsageError, match="are not kept"):
        operators.run(Bench(what="operators", only="mm", update=True))


def _row(c: list[float], module: list[float]) -> dict[str, Any]:
    times = {"c": 500.0, "cpp": 600.0, "execute": 450.0, "module": 1000.0, "module_execute": 900.0}
    return {
        "program": "linear",
        "threads": 1,
        "ns": times,
        "overhead_ns": {"c": c, "cpp": [60.0, 61.0], "module": module},
    }


def test_a_row_marks_missed_aims_and_claims_nothing_in_the_noise() -> None:
    found = forward.cells(_row([50.0, 52.0], [100.0, 104.0]))
    assert found[2:7] == ["0.50 µs", "0.60 µs", "1.00 µs", "0.50", "0.60"]
    assert found[7:] == ["51 ns", "60 ns (!)", "102 ns"]
    assert len(found) == len(forward.HEADINGS)
    assert forward.cells(_row([-3.0, 52.0], [100.0, 104.0]))[7] == "in the noise"
    assert forward.cells(_row([50.0, 52.0], [-9.0, 104.0]))[7:] == ["in the noise"] * 3


def test_programs_take_turns_and_ratios_have_geometric_means(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def run(subject: forward.Subject, built: Path, blocks: int, block: int) -> None:
        turns.append(subject.name)
        fast = 1.0 if subject.name == "a" else 4.0
        subject.rounds.append({"c": fast, "cpp": fast, "execute": 1.0, "module": 8.0, "module_execute": 6.0})

    monkeypatch.setattr(forward.Subject, "run", run)
    found = [forward.Subject(name, Path(), cast("Any", None), 1) for name in ("a", "b")]
    result = forward.measure(found, Path(), rounds=2, blocks=3, block=5)
    assert turns == ["a", "b"] * 2
    assert result["executions"] == 15
    assert result["geometric"] == {"c": 0.25, "cpp": 0.25}
    assert result["rows"][1]["overhead_ns"]["c"] == [3.0, 3.0]


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
