"""Nets of other projects, exported and measured; CI has one of torch itself, whose package is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from core import environment
from core.formats.bundle import Bundle
from core.formats.program import load_program
from tests.conftest import Inv
from tests.support.processes import well
from verify.bench import nets
from verify.bench.measuring import THREADS, sweep
from verify.bench.nets import Exported, choose, export, folder_of

pytestmark = [pytest.mark.build, pytest.mark.export]


def test_a_net_is_exported_measured_and_shown(
    lean: Bundle, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    monkeypatch.setattr(environment, "apart", lambda name: tmp_path / name)
    (program,) = choose("transformer_encoder fp32")
    absent = Exported(choose("lcnet_050 fp32")[0].net, "fp32")
    made = export([absent, program])
    assert "lcnet_050 cannot be made" in made[absent.name].error
    assert "timm" in made[absent.name].error
    assert made[program.name].error == ""
    folder = folder_of(program)
    described = load_program(folder)
    assert described.backends == ("XnnpackBackend",)
    model, reference = (numpy.load(folder / f"{name}0.npy") for name in ("float", "output"))
    assert model.shape == reference.shape == (1, 64, 256)
    assert float(numpy.abs(model - reference).max()) < 1e-4
    seen = sweep("nets", [nets.subject(program, lean, bundle)], [], 1)[program.name]
    assert list(seen.figures) == ["lean", nets.CACHED, "executorch"]
    for one in seen.figures.values():
        assert (one.error, tuple(one.p50_ms)) == ("", THREADS)
        assert one.apart < 1e-4
        assert min(*one.p50_ms.values(), one.load_ms, one.peak_rss_bytes) > 0
    assert nets.short([(program, seen)])[0][:2] == ["fp32", "1"]


@pytest.mark.long  # CI has the test before, which exports and measures by the same sweep, and tests/unit/test_nets.py
def test_nets_are_converted_for_other_runtimes_measured_and_compared(inv: Inv, tmp_path: Path) -> None:
    words = ("--only", "ds_cnn,lstm fp32", "--runtimes", "onnxruntime,ncnn", "--runs", "1", "--json")
    done = inv("self.bench", "--what", "peers", *words, timeout=3600, env={"SLIPWAY_DIST": str(tmp_path / "dist")})
    rows = json.loads(well(done).stdout)["rows"]
    assert list(rows) == ["ds_cnn fp32", "ds_cnn qs8", "lstm fp32"]
    for name, row in rows.items():
        assert list(row["figures"]) == ["lean", "onnxruntime", "ncnn"]
        for runtime, one in row["figures"].items():
            if (name, runtime) == ("ds_cnn qs8", "ncnn"):
                assert "no tool that quantizes" in one["error"]
                continue
            assert one["error"] == "", (name, runtime)
            assert one["apart"] < (1e-3 if name.endswith("fp32") else 0.5), (name, runtime)
            assert min(*one["p50_ms"].values(), one["load_ms"], one["peak_rss_bytes"], one["model_bytes"]) > 0
            assert one["library_bytes"] > 1_000_000
