"""Fixtures of unit tests."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from core import environment, front
from core.paths import ROOT
from tests.conftest import Inv


@pytest.fixture
def inv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inv:
    """``./inv`` in this process, which spares its start of half a second; test_front.py has real ones."""

    def call(*words: str, timeout: float = 0, env: dict[str, str] | None = None) -> CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setattr(environment, "enter", lambda: None)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = front.run(["--search-root", str(ROOT), *words])
        return CompletedProcess(words, code, *capsys.readouterr())

    return call
