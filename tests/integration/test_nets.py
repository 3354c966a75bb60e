"""A net of another project, exported and measured on both engines.

A net of torch itself: CI does not install the packages of the others, which takes longer than all of this.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from core import environment
from core.formats.bundle import Bundle
from core.formats.program import load_program
from verify.bench.measuring import sweep
from verify.nets import report
from verify.nets.exporting import export, folder_of
from verify.nets.table import Exported, choose

pytestmark = [pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module")
def bundles() -> tuple[Bundle, Bundle]:
    """This machine's own: lean, and upstream's engine."""
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    return build(host_target().name, "lean"), build(host_target().name, "executorch")


def test_a_net_is_exported_measured_and_shown(
    bundles: tuple[Bundle, Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    seen = sweep("nets", bundles, [report.subject(program)], 1)[program.name]
    assert seen.error == ""
    assert tuple(seen.figures) == report.THREADS
    assert seen.apart is not None
    assert (seen.apart.outside, seen.apart.lean_to_float < 1e-4) == (0, True)
    assert 0 < seen.cached_load_ms < 1000
    assert all(min(*one.p50_ms, *one.load_ms, *one.peak_rss_bytes) > 0 for one in seen.figures.values())
    row = (program, seen)
    assert report.full([row])[0][:2] == ["transformer_encoder", "fp32"]
    assert report.short([row])[0][:2] == ["fp32", "1"]
