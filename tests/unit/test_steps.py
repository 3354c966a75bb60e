"""What a build shows while it goes on."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from core import console
from core.console import screen as screens
from toolchains.bundle.steps import Steps

SAID = [
    "Building from source xnnpack/cci.20241108:abc",
    "-- Configuring done",
    "[1/40] Building C object a.c.o",
    "[40/40] Linking C static library libXNNPACK.a",
]


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[bool, io.StringIO]]:
    """Whether it is a terminal, and what was written to it."""
    written = io.StringIO()
    made = Console(file=written, force_terminal=request.param, width=100, highlight=False)
    for module in (console, screens):
        monkeypatch.setattr(module, "err", lambda: made)
    yield request.param, written


def test_steps_are_counted_and_said_once(screen: tuple[bool, io.StringIO]) -> None:
    with Steps(2) as steps:
        steps.begin("compiling")
        for line in SAID:
            steps.heard(line)
        steps.begin("compiling")
        steps.begin("reading")
    terminal, written = screen
    text = written.getvalue()
    assert text.index("[1/2] compiling") < text.index("      xnnpack/cci.20241108") < text.index("[2/2] reading")
    assert text.count("[1/2] compiling\n") == (0 if terminal else 1)
    assert text.count("✓ \x1b[0m[1/2] compiling (") == (1 if terminal else 0)
