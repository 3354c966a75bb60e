"""Transfers are measured with real bytes; against scp in test_deploy_pi.py, where a real sshd is."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.bench.transfers import measure


def test_this_machine_has_no_other_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "devices.toml").write_text(f'[here]\ntransport = "local"\nroot = "{tmp_path}/root"\n')
    monkeypatch.setenv("SLIPWAY_DEVICES_FILE", str(tmp_path / "devices.toml"))
    rows = measure("here", 2, 1)
    assert [row["way"] for row in rows] == ["slipway store", "slipway put"]
    assert not list((tmp_path / "root").glob("bench-*")), "nothing is left on the device"
