"""The line of an export: what it says on a terminal and elsewhere, and where its estimate comes from."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.lowering import progress
from models.lowering.progress import Display, Stages


class Terminal(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of the test's own, and no stage of another test."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    yield
    progress._active.clear()


def test_elsewhere_a_line_stays_and_the_next_one_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.show("mlp-qs8", "making the model", None, time.monotonic())
    display.show("mlp-qs8", "lowering", None, time.monotonic())
    assert stream.getvalue() == "mlp-qs8: making the model\n"
    monkeypatch.setattr(progress, "OFTEN", 0.0)
    display.show("mlp-qs8", "lowering: XnnpackPartitioner", 40.0, time.monotonic() - 12.2)
    display.close()
    assert stream.getvalue().splitlines()[1] == "mlp-qs8: lowering: XnnpackPartitioner (0 s of about 40 s)"


def test_a_terminals_line_ticks_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "TICK", 0.01)
    display = Display(stream, lambda: "1 of 3 done")
    display.show("a", "lowering", 40.0, time.monotonic() - 12.2)
    display.show("b", "exporting", 4.0, time.monotonic() - 12.2)
    drawn = len(stream.getvalue())
    while len(stream.getvalue()) == drawn:  # its own thread draws again
        time.sleep(0.005)
    display.say("a: 3 bytes\n")
    display.close()
    text = stream.getvalue()
    assert "1 of 3 done; a: lowering (12 s of about 40 s); b: exporting (12 s, longer" in text
    assert "\r\x1b[Ka: 3 bytes\n" in text
    assert text.endswith("\r\x1b[K")


def test_a_long_line_stays_one_line() -> None:
    stream = Terminal()
    display = Display(stream)
    display.show("a" * 300, "lowering", None, time.monotonic())
    assert len(stream.getvalue().rpartition("\x1b[K")[2]) == 79
    display.close()


def test_an_estimate_is_what_has_passed_and_what_later_stages_took() -> None:
    progress.keep("mlp-qs8", {"making": 2.0, "lowering": 30.0, "reference": 8.0})
    assert progress.last_time("mlp-qs8") == {"making": 2.0, "lowering": 30.0, "reference": 8.0}
    assert progress.last_time("other") == {}
    stages = Stages("mlp-qs8", io.StringIO())
    stages.show("making")
    assert stages.expected == pytest.approx(40.0, abs=1.0)
    stages._start -= 50.0
    stages.show("lowering")
    assert stages.expected == pytest.approx(88.0, abs=1.0)
    stages.done()
    stages.close()
    kept = progress.last_time("mlp-qs8")
    assert list(kept) == ["making", "lowering"]
    assert kept["making"] == pytest.approx(50.0, abs=1.0)


def test_a_stage_that_begins_again_counts_once() -> None:
    stages = Stages("a", io.StringIO())
    for stage in ("making", "exporting", "making", "exporting"):
        stages.show(stage)
    stages.done()
    stages.close()
    assert all(seconds >= 0 for seconds in progress.last_time("a").values())


def test_a_damaged_estimate_is_none(tmp_path: Path) -> None:
    progress.keep("a", {"x": 1.0})
    (tmp_path / "estimates" / "a.json").write_text("[1, 2")
    assert progress.last_time("a") == {}


def test_a_detail_reaches_the_stage_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, str, bool]] = []
    monkeypatch.setattr(progress, "listener", [lambda name, text, _, stage: heard.append((name, text, stage))])
    progress.at("nobody hears this")
    stages = Stages("a", io.StringIO())
    stages.show("quantizing")
    progress.at("calibrating with sample 1 of 2")
    stages.close()
    assert heard == [("a", "quantizing", True), ("a", "quantizing: calibrating with sample 1 of 2", False)]
