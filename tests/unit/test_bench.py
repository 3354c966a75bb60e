"""What the benches show: turns, ratios and overheads, marks where an aim is missed, and what is kept for the docs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.errors import SlipwayError
from core.formats.bundle import Bundle
from verify.bench import forward, operators
from verify.bench.forward import Subject
from verify.bench.operators import Use, cells, measure


def _bundle(engine: str) -> Bundle:
    return cast("Bundle", SimpleNamespace(manifest=SimpleNamespace(engine=engine)))


def test_engines_take_turns_and_the_fastest_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[str, int]] = []
    seconds = {"executorch": iter([1.0, 4.0, 2.0]), "lean": iter([0.5, 1.0, 3.0])}

    def run(_: Use, bundle: Bundle, executions: int) -> float:
        turns.append((bundle.manifest.engine, executions))
        return next(seconds[bundle.manifest.engine])

    monkeypatch.setattr(Use, "run", run)
    use = Use("softmax", "aten::_softmax.out", "2x3", Path("softmax.pte"), ())
    result = measure([use], [_bundle("executorch"), _bundle("lean")], 2)
    # As often as fits into the time, by the faster engine.
    assert turns == [("executorch", 5), ("lean", 5), *[("executorch", 80), ("lean", 80)] * 2]
    (row,) = result["rows"]
    assert (row["lean_us"], row["upstream_us"], row["ratio"]) == (1000.0, 2000.0, 0.5)
    assert result["geometric_mean"] == 0.5


@pytest.mark.parametrize(("ratio", "mark"), [(1.1, "1.10"), (1.2, "1.20 (!)")])
def test_a_ratio_above_the_aim_is_marked(ratio: float, mark: str) -> None:
    row: dict[str, Any] = {"name": "mm", "sizes": "2x3", "lean_us": 1234.5, "upstream_us": 2.0, "ratio": ratio}
    assert cells(row) == ["mm", "2x3", "1,234.5 µs", "2.0 µs", mark]


def test_figures_of_some_operators_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.environment.ensure_export", lambda: None)
    with pytest.raises(SlipwayError, match="are not kept"):
        operators.run(1, ["mm"], as_json=False, update=True)


def _row(c: list[float], module: list[float]) -> dict[str, Any]:
    times = {"c": 500.0, "cpp": 600.0, "execute": 450.0, "module": 1000.0, "module_execute": 900.0}
    return {
        "program": "linear",
        "threads": 1,
        "ns": times,
        "runner_ns": {"lean": 480, "executorch": 950},
        "overhead_ns": {"c": c, "cpp": [60.0, 61.0], "module": module},
    }


def test_a_row_marks_missed_aims_and_claims_nothing_in_the_noise() -> None:
    found = forward.cells(_row([50.0, 52.0], [100.0, 104.0]))
    assert found[2:9] == ["0.50 µs", "0.60 µs", "1.00 µs", "0.50", "0.60", "0.48 µs", "0.95 µs"]
    assert found[9:] == ["51 ns", "60 ns (!)", "102 ns"]
    assert len(found) == len(forward.HEADINGS)
    assert forward.cells(_row([-3.0, 52.0], [100.0, 104.0]))[9] == "in the noise"
    assert forward.cells(_row([50.0, 52.0], [-9.0, 104.0]))[9:] == ["in the noise"] * 3


def test_programs_take_turns_and_ratios_have_geometric_means(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def run(subject: Subject, built: Path, blocks: int, block: int) -> None:
        turns.append(subject.name)
        fast = 1.0 if subject.name == "a" else 4.0
        subject.rounds.append({"c": fast, "cpp": fast, "execute": 1.0, "module": 8.0, "module_execute": 6.0})

    monkeypatch.setattr(Subject, "run", run)
    found = [Subject(name, Path(), cast("Any", None), 1) for name in ("a", "b")]
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
    forward.run(1, as_json=True, update=True)
    assert ("| linear | 1 | 0.50 µs |" in forward.FORWARD.text()) is kept
