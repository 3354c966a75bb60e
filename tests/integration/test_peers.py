"""Two nets on two other runtimes beside lean, converted and measured for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Inv

# CI has tests/integration/test_nets.py, which exports and measures by the same sweep, and tests/unit/test_peers.py.
pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.long]


def test_nets_are_converted_measured_and_compared(inv: Inv, tmp_path: Path) -> None:
    words = ("self.peers", "--only", "ds_cnn,lstm fp32", "--runtimes", "onnxruntime,ncnn", "--runs", "1", "--json")
    done = inv(*words, timeout=3600, env={"SLIPWAY_DIST": str(tmp_path / "dist")})
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert list(rows) == ["ds_cnn fp32", "ds_cnn 8bit", "lstm fp32"]
    for name, row in rows.items():
        assert list(row["figures"]) == ["lean", "onnxruntime", "ncnn"]
        for runtime, one in row["figures"].items():
            if (name, runtime) == ("ds_cnn 8bit", "ncnn"):
                assert "no tool that quantizes" in one["error"]
                continue
            assert one["error"] == "", (name, runtime)
            assert one["apart"] < (0.5 if name.endswith("8bit") else 1e-3), (name, runtime)
            assert min(*one["p50_ms"].values(), one["load_ms"], one["peak_rss_bytes"], one["model_bytes"]) > 0
            assert one["library_bytes"] > 1_000_000
        assert 0 < row["limit_ms"]["1"] < row["figures"]["lean"]["p50_ms"]["1"]
