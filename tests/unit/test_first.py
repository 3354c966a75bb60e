"""Live lines of steps, and a first deploy as a whole: the time that is left, and what is installed beside it."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
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


FAILS = "import sys; sys.stderr.write('Installing the exporter\\n'); sys.exit(4)"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], list[subprocess.Popen[bytes]]]]:
    """Lets a Python program stand for the bootstrap, of an environment that lacks the exporter."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(text: str) -> list[subprocess.Popen[bytes]]:
        def begin(*_: object, **__: object) -> subprocess.Popen[bytes]:
            begun.append(subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE))
            return begun[-1]

        monkeypatch.setattr(environment, "_begun", begin)
        return begun

    monkeypatch.setattr(bootstrap, "is_installed", lambda *_: False)
    monkeypatch.setattr(environment, "venv", lambda: tmp_path)
    yield start
    for child in begun:
        child.kill()
        child.wait()


def test_its_failure_ends_the_block_with_its_reason(
    starts: Callable[[str], list[subprocess.Popen[bytes]]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    starts(FAILS)
    note = bootstrap.failure(tmp_path, "export")
    note.parent.mkdir()
    note.write_text("There is no network.\nCause: a cable\nTry: to plug it in")
    with pytest.raises(HostError, match="no network"), environment.beside("export"):
        time.sleep(30)
    assert time.monotonic() - begun < 20
    assert "Installing the exporter" in capfd.readouterr().err
    time.sleep(0.01)  # nothing comes later


def test_if_both_fail_both_reasons_are_said(
    starts: Callable[[str], list[subprocess.Popen[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)  # nobody hears an interrupt
    begun = starts(f"import time; time.sleep(0.5); {FAILS}")
    with pytest.raises(ZeroDivisionError), environment.beside("export"):
        begun[0].wait()
        _ = 1 / 0
    assert "Besides: The export packages could not be installed." in capfd.readouterr().err


def test_ensure_waits_for_it_and_hears_how_far_it_is(
    starts: Callable[[str], list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(live, "share", lambda name, done: told.append(done))
    begun = starts(f"import sys; sys.stderr.write({installer.MARK!r} + '0.500 3/4 numpy\\n')")
    with environment.beside("export"):
        environment.ensure("export")
    assert len(begun) == 1
    assert told == [0.5]


Screen = Callable[..., io.StringIO]


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


def test_a_failure_has_its_mark_and_is_not_kept_as_an_estimate(screen: Screen, tmp_path: Path) -> None:
    written = screen()
    with pytest.raises(RuntimeError), console.step("building", "build") as step:
        step.begun -= 100
        raise RuntimeError
    assert "✗ \x1b[0mbuilding (1 min 4" in written.getvalue()
    assert not (tmp_path / "cache/times/steps.json").exists()
