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


def test_a_terminal_has_a_line_for_each_and_one_for_all() -> None:
    stream = Terminal()
    display = Display(stream, 3)
    display.show("a", "lowering", 40.0, time.monotonic() - 12.2)
    display.show("b", "exporting", 4.0, time.monotonic() - 12.2)
    display.say("a: 3 bytes\n")
    display.done("b")
    display.close()
    text = stream.getvalue()
    assert "a: lowering" in text
    assert "0:12 of about 0:40" in text
    assert "0:12, the last time 0:04" in text
    assert "0/3" in text
    assert "a: 3 bytes\n" in text
    assert "✓" not in text, "the export says itself what came of it"


def test_the_last_times_seconds_are_the_estimate() -> None:
    Stages("a", io.StringIO()).done()
    heard: list[float | None] = []
    for seconds in (30.0, 40.0):
        stages = Stages("mlp-qs8", io.StringIO())
        heard.append(stages._expected)
        stages._start -= seconds
        stages.done()
        stages.close()
    assert heard == [None, pytest.approx(30.0, abs=1.0)]
