"""The packed weights that a deploy keeps on the device: later loads take them, whatever happened to the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.runner import WeightsCache
from deploy.run.settings import Settings
from deploy.run.weights import load_text
from deploy.upkeep import upkeep
from models.export import export
from tests.support.builds import lean
from tests.support.deploying import bench, root

__all__ = ["bench", "lean", "root"]

pytestmark = [pytest.mark.build, pytest.mark.export]

Go = Callable[..., Result]


@pytest.fixture
def go(bench: Device, lean: Bundle, dist: Path) -> Go:
    def call(model: str = "conv", device: Device = bench, **options: object) -> Result:
        settings = Settings(**{"num_executions": 1, "warmup": 0, **options})
        result = deploy(device, lean, export(model, "fp32"), settings)
        assert result.verdict in {"identical", "agrees"}
        return result

    return call


def _cache(result: Result) -> WeightsCache:
    assert result.runner.weights is not None
    assert result.runner.weights.cache is not None
    return result.runner.weights.cache


def _kept(go: Go, root: Path) -> Path:
    """The cache after a deploy or two: files that were made a moment ago are not trusted yet."""
    assert any(_cache(go()).state == "made" for _ in range(3))
    (file,) = (root / "weights").iterdir()
    return file


def _sums(result: Result) -> list[str]:
    return [output.sha256 for output in result.runner.outputs]


def test_the_second_load_packs_nothing(go: Go, root: Path, bench: Device) -> None:
    plain = go(weights_cache=False)
    assert plain.runner.weights is not None
    assert plain.runner.weights.cache is None
    assert not list((root / "weights").iterdir())
    file = _kept(go, root)
    assert file.name == f"{plain.program.sha256}.{bench.target}-lean"
    second = go()
    cache = _cache(second)
    assert (cache.state, cache.path) == ("used", str(file))
    assert second.runner.weights is not None
    assert second.runner.weights.packed == 0
    assert "with the weights cache kept on the device" in load_text(second.runner)
    assert _sums(second) == _sums(plain)
    never = go(device=bench.model_copy(update={"weights_cache": False}))
    assert never.runner.weights is not None
    assert never.runner.weights.cache is None


def test_upkeep_knows_them(go: Go, root: Path, bench: Device) -> None:
    file = _kept(go, root)
    assert upkeep.verify(bench).caches == 1
    assert not file.exists()
    assert _cache(go()).state == "made"
    assert upkeep.collect(bench).removed == ()
    assert file.exists()
    old = 0
    for path in [*(root / "store").iterdir(), *(root / "programs").iterdir()]:
        os.utime(path, (old, old))
    removed = upkeep.collect(bench, days=1).removed
    assert f"weights/{file.name}" in removed
    assert not file.exists()
