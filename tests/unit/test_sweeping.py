"""The sweep's bookkeeping: parts that are kept, findings put together, packages that are there already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import MismatchError
from verify.fuzz import build as fuzz_build
from verify.fuzz import sweeping
from verify.fuzz.sweeping import Part


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """Of a program that a script tries."""
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    tool = tmp_path / "sweep_program"
    finding = {"patch": 7, "path": "a.b", "was": "1", "now": "2", "outcome": "crashed", "report": "signal 11 at (nil)"}
    last = {"fields": 3, "patches": 30, "tried": 30, "sums": {"crashed": 1, "ran": 9, "loaded": 2, "refused-3": 18}}
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(finding)}\n{json.dumps(last)}\nEND\n", encoding="utf-8")
    tool.chmod(0o755)
    file = tmp_path / "model.pte"
    file.write_bytes(b"program")
    return Part(fuzz_build.GUARDED, "mlp-fp32", file, 0, 30, 1, (str(tool),))


def count(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Every part that is tried from now on."""
    tried: list[Part] = []
    attempt = sweeping.attempt

    def noted(part: Part) -> sweeping.Tried:
        tried.append(part)
        return attempt(part)

    monkeypatch.setattr(sweeping, "attempt", noted)
    return tried


def test_a_finding_fails_the_command_and_is_told(part: Part, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MismatchError, match="1 changed programs") as caught:
        sweeping.report([(part, sweeping.attempt(part))], as_json=True)
    assert "--first=7 --count=1" in caught.value.hint
    assert list(caught.value.names) == ["mlp-fp32: a.b 1 -> 2"]
    [row] = json.loads(capsys.readouterr().out)["programs"]
    assert row == {"form": "guarded", "program": "mlp-fp32", "tried": 30, "refused": 18, "ran": 11, "findings": 1}


def test_a_sweep_that_ends_by_itself_is_no_success(part: Part) -> None:
    Path(part.argv[0]).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(MismatchError, match="ended by itself"):
        sweeping.attempt(part)
