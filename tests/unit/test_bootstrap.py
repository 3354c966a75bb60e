"""The environment's installer: a Ctrl-C at the worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import bootstrap


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT is Ctrl-C, even where what started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_pip_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None) -> None:
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def starting(*words: Any, **settings: Any) -> subprocess.Popen[str]:
        child: subprocess.Popen[str] = popen(*words, **settings)
        started.append(child)
        os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(subprocess, "Popen", starting)
    with pytest.raises(KeyboardInterrupt):
        bootstrap._pip(tmp_path, [sys.executable, "-c", "import time; time.sleep(600)"], "nothing", 1)
    (child,) = started
    assert child.returncode == -signal.SIGKILL
