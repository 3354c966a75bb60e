"""The figures of one forward(): turns, overheads and their marks, and the table in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from verify.bench import forward
from verify.bench.forward import Subject, cells, measure


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
    found = cells(_row([50.0, 52.0], [100.0, 104.0]))
    assert found[2:9] == ["0.50 µs", "0.60 µs", "1.00 µs", "0.50", "0.60", "0.48 µs", "0.95 µs"]
    assert found[9:] == ["51 ns", "60 ns (!)", "102 ns"]
    assert len(found) == len(forward.HEADINGS)
    assert cells(_row([-3.0, 52.0], [100.0, 104.0]))[9] == "in the noise"
    assert cells(_row([50.0, 52.0], [-9.0, 104.0]))[9:] == ["in the noise"] * 3


def test_programs_take_turns_and_ratios_have_geometric_means(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def run(subject: Subject, built: Path, blocks: int, block: int) -> None:
        turns.append(subject.name)
        fast = 1.0 if subject.name == "a" else 4.0
        subject.rounds.append({"c": fast, "cpp": fast, "execute": 1.0, "module": 8.0, "module_execute": 6.0})

    monkeypatch.setattr(Subject, "run", run)
    found = [Subject(name, Path(), cast("Any", None), 1) for name in ("a", "b")]
    result = measure(found, Path(), rounds=2, blocks=3, block=5)
    assert turns == ["a", "b"] * 2
    assert result["executions"] == 15
    assert result["geometric"] == {"c": 0.25, "cpp": 0.25}
    assert result["rows"][1]["overhead_ns"]["c"] == [3.0, 3.0]
