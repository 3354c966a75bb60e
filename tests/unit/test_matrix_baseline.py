"""Regressions: what counts, what does not, and a planted one of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, MatrixError, RegressionError
from deploy.matrix import matrix as room
from deploy.matrix.baseline import Baseline, compare, load, save
from deploy.matrix.model import CellResult, Change
from deploy.matrix.significance import larger
from tests.support.matrices import EMULATED, OUTPUT, TIMES, cell, matrix, passed, problem

EMU = cell(EMULATED)


def verdicts(old: CellResult, new: CellResult, threshold: float = 0.1) -> dict[str, str]:
    found = compare(Baseline(created="", cells=(old,)), [new], threshold)
    return {change.what: change.verdict for change in found}


def times(factor: float, fastest: float | None = None) -> Any:
    return TIMES.model_copy(update={"p50": TIMES.p50 * factor, "min": TIMES.min * (fastest or factor)})


def test_rounds_that_are_all_above_those_before_have_the_smallest_p() -> None:
    assert larger([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(1 / 252)
    assert larger([1, 1, 1], [1, 1, 1]) > 0.5


@pytest.mark.parametrize(
    ("latency", "verdict"),
    [
        (times(1.09), "same"),
        (times(1.11), "cannot tell"),  # one round of each
        (times(0.8), "same"),
        (times(2.0, fastest=1.0), "same"),  # noise: the fastest execution is what it was
    ],
)
def test_latency(latency: Any, verdict: str) -> None:
    assert verdicts(passed(), passed(latency=latency))["latency p50"] == verdict


@pytest.mark.parametrize(
    "new",
    [
        passed(EMU, emulated_time=times(9)),
        passed(EMU, latency=None),
        passed(latency=times(9), throttled=("clock capped",)),
        passed(latency=times(9), cpu="another"),
        passed(latency=times(9), threads=1),
    ],
)
def test_times_that_count_for_nothing(new: CellResult) -> None:
    old = passed(EMU) if new.emulated else passed()
    assert verdicts(old, new)["latency p50"] == "not compared"
    assert verdicts(passed(throttled=("x",)), passed(latency=times(9)))["latency p50"] == "not compared"


@pytest.mark.parametrize("which", [cell(), EMU])
@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("program size", {"program_bytes": 120_000}),
        ("bundle size", {"bundle_bytes": 5_000_000}),
        ("error of output0", {"outputs": (OUTPUT.model_copy(update={"max_abs": 4e-6}),)}),
        ("digest of output0", {"outputs": (OUTPUT.model_copy(update={"sha256": "00" * 32}),)}),
    ],
)
def test_sizes_errors_and_digests_count_on_every_device(which: Any, what: str, changed: dict[str, Any]) -> None:
    found = verdicts(passed(which), passed(which, **changed))
    assert found.pop(what) == "worse"
    assert set(found.values()) <= {"same", "not compared"}
    assert verdicts(passed(which, **changed), passed(which))[what] in {"better", "worse"}


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    infinite = OUTPUT.model_copy(update={"max_abs": float("inf")})
    failed = passed(EMU, outcome="failed", problem=problem())
    save(tmp_path / "b.json", matrix(passed(outputs=(infinite,), reused=True), failed))
    assert load(tmp_path / "b.json").cells == (passed(outputs=(infinite,)),)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "baseline"}', '{"schema_version": 2}'])
def test_what_is_no_baseline_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    with pytest.raises(ConfigError, match="There is no baseline"):
        load(file)
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not a baseline"):
        load(file)


def test_how_a_matrix_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "base.json"
    room.check(matrix(), tmp_path, str(file))
    assert load(file).cells == (passed(),)
    slow = Change(key=passed().key, what="latency p50", before="10.000 ms", now="20.000 ms", ratio=2.0, verdict="worse")
    worse = (slow,)
    bad = matrix(passed(latency=times(2)), baseline="base.json", threshold=0.1, changes=worse)
    with pytest.raises(RegressionError, match=r"1 figure is worse than base.json by more than 10%") as caught:
        room.check(bad, tmp_path, str(tmp_path / "never.json"))
    assert caught.value.exit_code == 34
    assert "latency p50 was 10 ms, is 20 ms" in caught.value.cause
    failed = passed(outcome="failed", problem=problem())
    with pytest.raises(MatrixError, match="1 of 1 cells failed") as wrong:
        room.check(matrix(failed, baseline="base.json", threshold=0.1, changes=worse), tmp_path)
    assert wrong.value.exit_code == 33
    assert not (tmp_path / "never.json").exists()
    # Without a threshold a baseline only informs.
    room.check(matrix(passed(), baseline="base.json", changes=worse), tmp_path)
