"""The record of where targets ran: from kept results, into `./inv targets --json` and the README's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.run import result
from tests.conftest import Inv
from tests.unit.test_result import make
from toolchains import ran
from verify import docs


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record with nothing in it, a README of its own, and an empty ``dist/``."""
    monkeypatch.setattr(ran, "RECORD", tmp_path / "ran.json")
    ran.RECORD.write_text("[]", encoding="utf-8")
    (tmp_path / "README.md").write_text("<!-- targets -->\n<!-- /targets -->\n", encoding="utf-8")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "readme", lambda: f"<!-- targets -->\n{docs.targets_markdown()}<!-- /targets -->\n")
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    return tmp_path


def rows(inv: Inv) -> dict[str, list[dict[str, Any]]]:
    done = inv("targets", "--json")
    assert done.returncode == 0, done.stderr
    return {each["name"]: each["ran"] for each in json.loads(done.stdout)}


def test_the_last_run_on_each_device_is_kept_and_shown(inv: Inv, own: Path) -> None:
    assert not any(rows(inv).values())
    assert "on pi" not in inv("targets").stdout
    first = make(emulated=True)
    for created, program in (("2026-11-22T04:00:00.000Z", "conv"), ("2026-11-21T04:00:00.000Z", "mlp")):
        about = first.program.model_copy(update={"name": program})
        result.write(first.model_copy(update={"created": created, "program": about}))
    alone = first.model_copy(update={"device": "alone", "verdict": "no reference"})
    result.write(alone)
    (own / "dist" / "results" / "history" / "other.json").write_text('{"schema_version": 0}', encoding="utf-8")
    found = rows(inv)
    assert [name for name, runs in found.items() if runs] == ["linux-arm64"]
    (run,) = found["linux-arm64"]
    assert (run["program"], run["device"], run["emulated"]) == ("conv", "pi", True)
    assert ran.record() == (), "this machine's own results are kept only if asked for"
    assert inv("self.docs", "--update").returncode == 0
    (kept,) = ran.record()
    assert kept.created.startswith("2026-11-22")
    line = next(line for line in (own / "README.md").read_text().splitlines() if line.startswith("| linux-arm64 "))
    assert "executorch on pi (emulated): conv, 2026-11-22" in line
    result.write(first.model_copy(update={"created": "2026-11-20T04:00:00.000Z"}))
    assert inv("self.docs", "--update").returncode == 0
    assert ran.record() == (kept,), "an older run does not replace a later one"
