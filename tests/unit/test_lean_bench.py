"""The comparison of the engine lean with upstream's: ratios, turns, and marks where an aim is missed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from verify.bench.engines import Case
from verify.bench.lean import cells, compare, measure


def _case(engine: str, turns: list[str], load: float, latency: float, rss: int) -> Case:
    files = (SimpleNamespace(path="bin/pte_runner", size=rss), SimpleNamespace(path="licenses/x", size=7))
    bundle = cast("Any", SimpleNamespace(manifest=SimpleNamespace(files=files)))
    case = Case(engine, "", "mlp fp32", bundle, Path(), cast("Any", None))

    def run(threads: int, executions: int, warmup: int) -> None:
        turns.append(engine)
        case.load.append(load)
        case.latency.append(latency)
        case.rss.append(rss)

    case.run = run  # type: ignore[method-assign]
    return case


def test_ratios_are_of_ours_to_theirs_and_engines_take_turns() -> None:
    turns: list[str] = []
    pair = (_case("executorch", turns, 10.0, 2.0, 40), _case("lean", turns, 6.0, 1.0, 30))
    result = measure([pair], threads=2, rounds=2, executions=1)
    assert turns == ["executorch", "lean"] * 2
    assert (result["bundle_bytes"], result["size_ratio"]) == ([30, 40], 0.75)
    row = compare(pair)
    assert row["ratios"] == {"load": 0.6, "p50": 0.5, "rss": 0.75}
    assert cells(row)[2::2] == ["0.60 (!)", "0.50", "0.75"]
