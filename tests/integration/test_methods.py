"""Several methods in one program: they share their state on every engine, and each is compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest

from core.errors import ExportError, UsageError
from core.formats.program import load_program
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from models.export import export
from tests.support.builds import lend_bundle
from toolchains.targets import host_target

pytestmark = [pytest.mark.export, pytest.mark.build]

MODEL = f"{ROOT / 'tests/fixtures/models/stateful.py'}:methods"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method that fills a state, and one that computes with it and changes it."""
    return export(MODEL, out=tmp_path_factory.mktemp("methods"))


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    root = tmp_path_factory.mktemp("device")
    return Device(name="bench", transport="local", target=host_target().name, root=str(root), timeout=120)


@pytest.mark.parametrize("engine", ["lean", "executorch"])
def test_a_method_finds_what_the_one_before_left(folder: Path, device: Device, dist: Path, engine: str) -> None:
    bundle = lend_bundle(dist, device.target, engine)
    program = load_program(folder)
    assert (program.method, [one.name for one in program.before]) == ("use", ["put"])
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    result = deploy(device, bundle, folder, listeners=[])
    assert [one.name for one in result.outputs] == ["output0", "output0 (put)"]
    assert result.verdict in ("identical", "agrees")
    (ran,) = result.methods
    assert (ran.name, ran.latency_ms > 0) == ("put", True)
    alone = deploy(device, bundle, folder, Settings(method="put", num_executions=1, warmup=0), listeners=[])
    assert (alone.verdict, alone.program.method, len(alone.outputs)) == ("identical", "put", 1)


@pytest.mark.parametrize("scheme", ["qd8_qc8w", "qs8"])
def test_methods_in_a_scheme_agree_with_the_host(device: Device, dist: Path, tmp_path: Path, scheme: str) -> None:
    folder = export(MODEL, scheme, out=tmp_path)
    program = load_program(folder)
    assert program.quantization.skipped == ()
    assert not [one for one in program.warnings if "calibrated on" not in one]
    for engine in ("lean", "executorch"):
        result = deploy(device, lend_bundle(dist, device.target, engine), folder, listeners=[])
        assert len(result.outputs) == 2
        assert result.verdict in ("identical", "agrees")


def test_what_one_method_gets_wrong_is_seen(folder: Path, device: Device, dist: Path, tmp_path: Path) -> None:
    bundle = lend_bundle(dist, device.target, "lean")
    changed = shutil.copytree(folder, tmp_path / folder.name)
    other = numpy.load(changed / "output0-put.npy")
    other[0, 0] += 1
    numpy.save(changed / "output0-put.npy", other)
    result = deploy(device, bundle, changed, listeners=[])
    assert [one.name for one in result.outputs if one.verdict == "differs"] == ["output0 (put)"]
    prompt = numpy.load(changed / "input0-put.npy")
    numpy.save(changed / "input0-put.npy", prompt + 1)
    assert deploy(device, bundle, changed, listeners=[]).outputs[0].verdict == "differs", "another state"
    with pytest.raises(UsageError, match="has no execution 11"):
        deploy(device, bundle, folder, Settings(method="put"), listeners=[])


CASES = {
    "absent": ("Methods(first=(x,), third=(x,))", "has no method third"),
    "single": ("Methods(first=(x,))", "fewer than two methods"),
    "empty": ("Methods(first=(x,), second=())", "method second, gives example inputs without a tensor"),
}


@pytest.mark.parametrize("case", CASES)
def test_methods_that_cannot_be_exported_are_named(tmp_path: Path, case: str) -> None:
    methods, what = CASES[case]
    (tmp_path / "net.py").write_text(
        "import torch\nfrom models.methods import Methods\n\n\nclass Both(torch.nn.Module):\n"
        "    def first(self, x):\n        return x + 1\n\n    def second(self, x):\n        return x - 1\n\n\n"
        f"def make():\n    x = torch.ones(2)\n    return Both(), {methods}\n"
    )
    with pytest.raises(ExportError, match=what):
        export(f"{tmp_path / 'net.py'}:make", out=tmp_path / "out")


def test_a_method_that_only_reads_the_state_sees_it_or_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom models.methods import Methods\n\n\nclass Scales(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('scale', torch.ones(4, 4))\n\n"
        "    def put(self, x):\n        self.scale.copy_(x)\n        return x + 0\n\n"
        "    def scaled(self, x):\n        return torch.nn.functional.linear(x, self.scale)\n\n\n"
        "def make():\n    x = torch.full((4, 4), 3.0)\n    return Scales(), Methods(put=(x,), scaled=(x,))\n"
    )
    with pytest.raises(ExportError, match=r"scaled only reads .*scale, which another method changes") as caught:
        export(f"{tmp_path / 'net.py'}:make", out=tmp_path / "out")
    assert "--partitioners none" in caught.value.hint
    folder = export(f"{tmp_path / 'net.py'}:make", partitioners=["none"], out=tmp_path / "out")
    assert numpy.load(folder / "output0.npy").ravel().tolist() == [36.0] * 16
