"""Regressions: what counts, what does not, a planted one of each kind, doubt, and what twenty identical pairs say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, MatrixError, RegressionError, UncertainError
from core.paths import ROOT
from deploy.matrix import ci
from deploy.matrix import matrix as room
from deploy.matrix.baseline import Baseline, compare, load, save
from deploy.matrix.model import CellResult, Change, Round
from tests.support.matrices import EMULATED, OUTPUT, TIMES, cell, matrix, passed, problem

EMU = cell(EMULATED)


def verdicts(old: CellResult, new: CellResult, threshold: float = 0.1) -> dict[str, str]:
    found = compare(Baseline(created="", cells=(old,)), [new], threshold)
    return {change.what: change.verdict for change in found}


def times(factor: float, fastest: float | None = None) -> Any:
    return TIMES.model_copy(update={"p50": TIMES.p50 * factor, "min": TIMES.min * (fastest or factor)})


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


def rounds(*p50s: float, load: float | None = 0.5, hottest: float | None = None) -> CellResult:
    made = tuple(Round(p50=each, min=0.9 * each, load=load, hottest_c=hottest) for each in p50s)
    return passed(rounds=made, latency=TIMES.model_copy(update={"p50": made[0].p50, "min": made[0].min}))


def latency(old: CellResult, new: CellResult, threshold: float = 0.1) -> Change:
    found = compare(Baseline(created="", cells=(old,)), [new], threshold)
    return next(each for each in found if each.what == "latency p50")


STEADY = rounds(10.0, 10.1, 10.2, 9.9, 10.05)
SLOWER = (12.0, 12.1, 12.2, 11.9, 12.05)


def test_a_planted_regression_is_found() -> None:
    found = latency(STEADY, rounds(*SLOWER))
    assert (found.verdict, found.before, found.now, found.why) == ("worse", "10.050 ms", "12.050 ms", "")
    assert latency(rounds(*SLOWER), STEADY).verdict == "better"
    assert latency(STEADY, rounds(*SLOWER), threshold=0.3).verdict == "same"


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (rounds(*SLOWER, load=9.5), "the device was busy now: its load was 9.5"),
        (rounds(12.0), "5 and 1 rounds"),
        (rounds(9.9, 12.1, 10.0, 12.3, 12.2), "by chance"),
        (rounds(*SLOWER, hottest=80.0), "the device was 40 °C hotter"),
    ],
)
def test_what_nobody_can_tell(new: CellResult, why: str) -> None:
    old = rounds(*(each.p50 for each in STEADY.rounds), hottest=40.0)
    slow = new.model_copy(update={"rounds": tuple(each.model_copy(update={"min": each.p50}) for each in new.rounds)})
    found = latency(old, slow)
    assert found.verdict == "cannot tell"
    assert why in found.why


def test_doubt_about_a_gain_is_no_gain() -> None:
    found = latency(rounds(*SLOWER, load=9.5), STEADY)
    assert (found.verdict, "busy then" in found.why) == ("same", True)


NOISE = json.loads((ROOT / "tests" / "fixtures" / "noise.json").read_text(encoding="utf-8"))
PROGRAMS = ("conv-fp32", "linear-fp32", "matmul-fp32")


def recorded(program: str, pair: int, factor: float = 1.0) -> tuple[CellResult, CellResult]:
    """Two cells of five rounds, in turns, of recorded times around 10 ms; the second is ``factor`` times as slow."""
    middle = statistics.median(p50 for p50, _least in NOISE[program])
    times = [(10 * p50 / middle, 10 * least / middle) for p50, least in NOISE[program][10 * pair : 10 * pair + 10]]

    def cell(some: list[tuple[float, float]], by: float) -> CellResult:
        made = tuple(Round(p50=by * p50, min=by * least) for p50, least in some)
        return passed(rounds=made, latency=TIMES.model_copy(update={"p50": made[0].p50, "min": made[0].min}))

    return cell(times[0::2], 1.0), cell(times[1::2], factor)


@pytest.mark.parametrize("program", PROGRAMS)
def test_of_twenty_recorded_identical_pairs_none_is_worse(program: str) -> None:
    """The rounds scatter by up to four times: a processor that changes its clock, and others' work."""
    assert [latency(*recorded(program, pair)).verdict for pair in range(20)] == ["same"] * 20


def test_most_of_what_is_a_third_slower_is_found_in_noise() -> None:
    """What the noise hides is called the same or doubtful, never better."""
    verdicts = [latency(*recorded(program, pair, 1.3)).verdict for program in PROGRAMS for pair in range(20)]
    assert verdicts.count("worse") >= 45
    assert "better" not in verdicts


def test_doubt_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    new = rounds(12.0, 12.5)
    new = new.model_copy(update={"rounds": tuple(each.model_copy(update={"min": each.p50}) for each in new.rounds)})
    changes = compare(Baseline(created="", cells=(STEADY,)), [new], 0.1)
    found = matrix(new, baseline="base.json", threshold=0.1, changes=changes)
    with pytest.raises(UncertainError, match=r"1 figure may be worse than base\.json allows") as caught:
        room.check(found, tmp_path, str(tmp_path / "never.json"))
    assert caught.value.exit_code == 36
    assert not (tmp_path / "never.json").exists()
    assert b'type="uncertain"' in ci.junit(found)
    room.check(matrix(new, baseline="base.json", changes=changes), tmp_path)  # without a threshold it only informs
