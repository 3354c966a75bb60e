"""Live lines of steps, and a first deploy as a whole: the time that is left, and what is installed beside it."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from core import console, environment
from core.console import live
from core.console import marks as screens
from core.console.live import SECONDS, Whole
from core.environment import bootstrap, installer
from core.errors import HostError
from core.processes.commands import process


class Clock:
    """Both clocks of `core.console.live`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(live, "time", made)
    return made


def test_the_time_left_is_the_tables_by_as_much_slower_as_it_was(clock: Clock) -> None:
    whole = Whole()
    beside = max(SECONDS["exporter"], SECONDS["weights"] + SECONDS["runner"])
    total = beside + SECONDS["export"] + SECONDS["run"]
    assert whole.left() == pytest.approx(total)
    whole.begin("weights")
    clock.now += 2 * beside  # twice as long as it should take
    for part in ("weights", "runner", "exporter"):
        whole.end(part)
    half_as_fast = whole.left()
    assert 1.5 * (total - beside) < half_as_fast < 2 * (total - beside)
    before = whole.share()
    clock.now += 600
    assert whole.share() >= before, "the bar never goes back"
    for part in SECONDS:
        whole.end(part)
    assert whole.left() == 0
    assert str(whole) == "100%, about 0:00 left"
    whole = Whole()
    for part in ("weights", "runner"):
        whole.end(part)
    assert whole.left() > SECONDS["exporter"]
    whole.far("exporter", 0.9)
    assert whole.left() < SECONDS["exporter"]


@pytest.mark.parametrize(
    ("said", "resumed"),
    [("990 deploy", True), ("990 doctor", False), ("", False), ("x deploy", False), ("2000 deploy", False)],
)
def test_it_goes_on_where_the_packages_were_installed(
    said: str, resumed: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(live.FIRST, said)
    found = Whole.resumed()
    assert (found is not None) is resumed
    if found is not None:
        found.end("packages")
        clock.now += 10
        assert found.share() > 0.1


Installs = Callable[[Callable[[], None]], None]
NO_NETWORK = HostError("There is no network.", "a cable", "to plug it in")


def fails() -> None:
    raise NO_NETWORK


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installs:
    """Lets a function stand for the installation into an environment that lacks the exporter."""
    monkeypatch.setattr(bootstrap, "is_installed", lambda *_: False)
    monkeypatch.setattr(environment, "venv", lambda: tmp_path / "venv")
    return lambda work: monkeypatch.setattr(bootstrap, "install", lambda *_: work())


def test_its_failure_ends_the_block_with_its_reason(installs: Installs) -> None:
    begun = time.monotonic()
    installs(fails)
    with pytest.raises(HostError, match="no network"), environment.beside("export"):
        time.sleep(30)
    assert time.monotonic() - begun < 20
    assert str(environment.why("export")) == str(NO_NETWORK)


def test_if_both_fail_both_reasons_are_said(
    installs: Installs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)  # nobody hears an interrupt
    installs(fails)
    with pytest.raises(ZeroDivisionError), environment.beside("export"):
        while environment.why("export") is None:
            time.sleep(0.01)
        time.sleep(0.1)
        _ = 1 / 0
    assert "Besides: There is no network." in capfd.readouterr().err


def test_ensure_waits_for_it_and_hears_how_far_it_is(installs: Installs, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    monkeypatch.setattr(live, "share", lambda name, done: told.append(done))

    def work() -> None:
        hear = installer.heard.get()
        assert hear is not None
        time.sleep(0.2)
        hear(0.5, "3/4 numpy")

    installs(work)
    with environment.beside("export"):
        environment.ensure("export")
        assert told == [0.5]
    assert environment.why("export") is None


def test_an_interrupted_block_ends_pip_and_says_nothing_of_it(installs: Installs) -> None:
    begun = threading.Event()

    def work() -> None:
        with process(["sleep", "60"]) as child:
            begun.set()
            child.wait()
        fails()

    installs(work)
    with pytest.raises(KeyboardInterrupt), environment.beside("export"):
        begun.wait(20)
        raise KeyboardInterrupt
    assert not environment._beside
    assert environment.why("export") is None


Screen = Callable[..., io.StringIO]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Makes stderr a terminal or a pipe, and gives what is written to it."""

    def make(terminal: bool = True) -> io.StringIO:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        written, xterm = io.StringIO(), {"TERM": "xterm"}
        made = Console(file=written, force_terminal=terminal, width=90, highlight=False, markup=False, _environ=xterm)
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


@pytest.mark.parametrize("talks", [False, True])
def test_nothing_is_drawn_while_another_program_has_the_terminal(screen: Screen, talks: bool) -> None:
    """Neither is a step that begins then."""
    written = screen()
    with live.paused() if talks else contextlib.nullcontext(), console.step("running mlp"):
        time.sleep(0.3)
        assert ("running mlp" in written.getvalue()) != talks


def test_a_failure_has_its_mark_and_is_not_kept_as_an_estimate(screen: Screen, tmp_path: Path) -> None:
    written = screen()
    with pytest.raises(RuntimeError), console.step("building", "build") as step:
        step.begun -= 100
        raise RuntimeError
    assert "✗ \x1b[0mbuilding (1 min 4" in written.getvalue()
    assert not (tmp_path / "cache/times/steps.json").exists()
