"""Fixtures of unit tests."""

from __future__ import annotations

import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from core import environment
from core.cli import main
from core.paths import ROOT
from tests.conftest import Inv
from verify import tables


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache and ``dist/`` of the test's own: no unit test reads or changes what others keep there."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))


@pytest.fixture
def inv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inv:
    """``./inv`` in this process, which spares its start of half a second; test_command_line.py has real ones."""

    def call(*words: str, timeout: float = 0, env: dict[str, str] | None = None) -> CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setattr(environment, "enter", lambda: None)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = main.run(["--search-root", str(ROOT), *words])
        return CompletedProcess(words, code, *capsys.readouterr())

    return call


@pytest.fixture
def empty_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the docs in a folder of the test's, with nothing in them."""
    for page in (ROOT / "docs").glob("*.md"):
        names = re.findall(r"<!-- (\w[\w-]*) -->", page.read_text(encoding="utf-8"))
        copy = tmp_path / "docs" / page.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text("\n".join(f"<!-- {name} -->\n<!-- /{name} -->" for name in names), encoding="utf-8")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
