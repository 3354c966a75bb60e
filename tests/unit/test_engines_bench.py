"""The engines' comparison: percentiles, turns, and what is kept for the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from verify.bench import engines as engines_bench
from verify.bench.engines import Case, measure, percentile


def test_percentiles_are_of_the_nearest_rank() -> None:
    ordered = [float(value) for value in range(1, 11)]
    assert percentile(ordered, 50) == 5
    assert percentile(ordered, 90) == 9
    assert percentile([7.0], 90) == 7


def _case(engine: str, turns: list[str]) -> Case:
    case = Case(engine, "", "fp32", cast("Any", None), Path(), cast("Any", None))

    def run(threads: int, executions: int, warmup: int) -> None:
        turns.append(engine)
        case.load.append(len(turns))

    case.run = run  # type: ignore[method-assign]
    case.row = lambda: {"engine": engine}  # type: ignore[method-assign]
    return case


def test_engines_take_turns() -> None:
    turns: list[str] = []
    result = measure([_case("a", turns), _case("b", turns)], threads=2, rounds=3, executions=20)
    assert turns == ["a", "b"] * 3
    assert (result["threads"], result["rounds"], [row["engine"] for row in result["rows"]]) == (2, 3, ["a", "b"])


@pytest.mark.parametrize(("load", "kept"), [(0.1, True), (3.0, False)])
def test_figures_of_a_busy_machine_are_not_kept(
    load: float, kept: bool, monkeypatch: pytest.MonkeyPatch, empty_tables: None
) -> None:
    row = {
        "engine": "e", "version": "1", "scheme": "fp32", "load_ms": 1.0, "p50_ms": 2.0, "p90_ms": 3.0,
        "peak_rss_bytes": 4_000_000, "program_bytes": 5_000_000, "bundle_bytes": 6_000_000,
    }  # fmt: skip
    result = {"model": "m", "threads": 2, "rounds": 1, "executions": 20, "machine": "x", "rows": [row]}
    monkeypatch.setattr(engines_bench, "cases", list)
    monkeypatch.setattr(engines_bench, "measure", lambda *a, **k: {**result, "load_average_before": load})
    engines_bench.run(1, 2, as_json=True, update=True)
    table = engines_bench.DOCS.text()
    assert ("| e (1) | fp32 | 1.0 ms | 2.00 ms | 3.00 ms | 4.0 MB | 5.0 MB | 6.0 MB |" in table) is kept
