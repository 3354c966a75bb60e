"""The comparison of single operators: turns, the fastest round, ratios, and marks where the aim is missed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.errors import SlipwayError
from core.formats.bundle import Bundle
from verify.bench import operators
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
