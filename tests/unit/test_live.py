"""Live lines: one for each step on a terminal, a plain line elsewhere, and the last time's duration as an estimate."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from core import console
from core.console import live
from core.console import screen as screens

Screen = Callable[..., io.StringIO]


@pytest.fixture(autouse=True)
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the steps' times, in a cache of this test's own."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    return tmp_path / "times" / "steps.json"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Makes stderr a terminal or a pipe, and gives what is written to it."""

    def make(terminal: bool = True, **options: str) -> io.StringIO:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        environ = {"TERM": "xterm", **options}
        written = io.StringIO()
        made = Console(
            file=written, force_terminal=terminal, width=90, highlight=False, markup=False, _environ=environ
        )  # fmt: skip
        for module in (console, screens):
            monkeypatch.setattr(module, "err", lambda: made)
        return written

    yield make
    assert not live._screens


def test_a_pipe_gets_plain_lines(screen: Screen) -> None:
    written = screen(terminal=False)
    with console.step("building linux-arm64", "build") as step:
        step.now("xnnpack")
        step.count(3, 40)
    assert written.getvalue() == "building linux-arm64\n"
    written = screen(terminal=False)
    with console.step("uploading to pi", announce=False) as step:
        step.bytes(10, 10)
        step.outcome = "uploaded 1 file"
    with console.step("probing", announce=False):
        pass
    assert re.fullmatch(r"uploaded 1 file \(\d+\.\d s\)\n", written.getvalue())
    written = screen(terminal=False)
    with console.step("running \x1b[31mevil"):
        pass
    assert written.getvalue() == "running \\x1b[31mevil\n"


def test_a_failure_has_its_mark_and_is_not_kept_as_an_estimate(screen: Screen, times: Path) -> None:
    written = screen()
    with pytest.raises(RuntimeError), console.step("building", "build") as step:
        step.begun -= 100
        raise RuntimeError
    assert "✗ \x1b[0mbuilding (1 min 4" in written.getvalue()
    assert not times.exists()
