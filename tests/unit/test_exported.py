"""Programs kept between runs of the tests: whole, only where they lack, only the zoo's."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from core.errors import SlipwayError
from core.formats.program import DESCRIPTION
from verify.suite import exported


def _program(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / DESCRIPTION).write_text(text)
    (folder / "model.pte").write_text(f"program {text}")


def test_a_fresh_checkout_gets_what_another_left_even_when_tests_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "first/programs", tmp_path / "second/programs"
    monkeypatch.setenv("SLIPWAY_DIST", str(first.parent))
    with exported.kept():
        _program(first / "mlp-fp32", "1")
        _program(first / "linear-qs8", "2")
        _program(first / "mine-fp32", "of the user's")
        (first / "conv-fp32").mkdir()  # left unfinished
    monkeypatch.setenv("SLIPWAY_DIST", str(second.parent))
    _program(second / "linear-qs8", "3")
    with contextlib.suppress(SlipwayError), exported.kept():
        assert sorted(path.name for path in second.iterdir()) == ["linear-qs8", "mlp-fp32"]
        assert (second / "mlp-fp32/model.pte").read_text() == "program 1"
        assert (second / "linear-qs8/model.pte").read_text() == "program 3"
        raise SlipwayError("Failed: unit tests.")
    kept = tmp_path / "cache/tests/programs"
    assert sorted(path.name for path in kept.iterdir()) == ["linear-qs8", "mlp-fp32"]
    assert (kept / "linear-qs8/model.pte").read_text() == "program 3"
