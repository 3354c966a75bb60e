"""Live lines: one for each step on a terminal, a plain line elsewhere, and the last time's duration as an estimate."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from core import console
from core.console import live, marks
from core.console import screen as screens
from verify.picture import settled

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


def test_the_last_time_and_a_rate_are_estimates(screen: Screen) -> None:
    screen()
    with console.step("building", "build") as step:
        assert step.before is None
        step.begun -= 42
    with console.step("building", "build") as step:
        assert step.before is not None
        assert step.before >= 42
        step.before = 3600
        assert re.fullmatch(r"\d+:\d\d of about 1:00:00", live.far(step, None))
        step.begun -= 3700
        assert re.fullmatch(r"1:\d\d:\d\d, the last time 1:00:00", live.far(step, None))
    screen()
    with console.step("downloading") as step:
        step.bytes(0, 40_000_000)
        assert re.fullmatch(r"\d:\d\d", live.far(step, None))
        step.bytes(10_000_000, 40_000_000)
        assert re.fullmatch(r"10 MB of 40 MB, 5 MB/s, \d:\d\d of about \d:\d\d", live.far(step, 5e6))
        step.bytes(1234, None)
        assert re.fullmatch(r"1.23 kB, \d:\d\d", live.far(step, None))


def test_a_growing_folder_is_watched(screen: Screen, tmp_path: Path) -> None:
    screen()
    with console.step("downloading") as step, console.growing(step, tmp_path, 100, "*.whl"):
        (tmp_path / "unpacked.py").write_bytes(b"x" * 1000)
        (tmp_path / "some.whl").write_bytes(b"x" * 60)
        seen = threading.Event()
        for _ in range(2000):
            if step.done >= 60:
                break
            seen.wait(0.05)
    assert (step.done, step.total, step.unit) == (60, 100, "bytes")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_errors_have_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    said = "It broke.\nCause: rust\nTry: paint"
    assert marks.failure(said, io.StringIO()) == said
    assert marks.failure(said, _Terminal()) == (
        "\x1b[1;31m✗ It broke.\x1b[0m\n\x1b[1mCause:\x1b[0m rust\n\x1b[1mTry:\x1b[0m paint"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert marks.failure(said, _Terminal()) == "✗ It broke.\nCause: rust\nTry: paint"


def test_the_picture_shows_what_a_terminal_shows_in_the_end(screen: Screen) -> None:
    written = screen()
    with console.step("building") as step:
        step.count(1, 2)
        assert step._shown is not None
        step._shown[0].refresh()
        console.note("a note")
        with console.step("downloading"):
            step._shown[0].refresh()
    shown = [re.sub(r"\x1b\[[\d;]*m|\d+\.\d s", "", line) for line in settled(written.getvalue()).splitlines()]
    assert [line.rstrip() for line in shown] == ["a note", "✓ downloading ()", "✓ building ()"]
