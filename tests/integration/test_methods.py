"""Several methods in one program: they share their state on every engine, and each is compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest

from core.errors import ExportError, UsageError
from core.formats.program import load_program
from core.paths import ROOT, cache_dir
from deploy.devices.inventory import Device
from deploy.run import report
from deploy.run.pipeline import deploy
from deploy.run.settings import DEFAULT, Settings, generating
from models.export import export
from models.reference.host import Host
from tests.support.builds import lend_bundle
from toolchains.targets import host_target

pytestmark = [pytest.mark.export, pytest.mark.build]

MODEL = f"{ROOT / 'models/nets/talking.py'}:make_methods"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example that reads a prompt of 3 tokens at once and generates 32."""
    with Host(cache_dir("logs") / "export-tests.log") as host:
        return export(MODEL, out=tmp_path_factory.mktemp("methods"), host=host)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    root = tmp_path_factory.mktemp("device")
    return Device(name="bench", transport="local", target=host_target().name, root=str(root), timeout=120)


def spoken() -> list[int]:
    """The tokens of a loop in PyTorch, one after another, after the prompt."""
    import torch

    from models.nets.talking import Speaker

    torch.manual_seed(0)
    speaker, tokens = Speaker().eval(), [1, 15, 27]
    with torch.no_grad():
        for position in range(2 + 32):
            scores = speaker(torch.tensor([[tokens[position]]]), torch.tensor([position]))
            if position >= 2:
                tokens.append(int(scores.argmax()))
    return tokens[3:]


@pytest.mark.parametrize("engine", ["lean", "executorch"])
def test_decode_finds_what_prefill_left(folder: Path, device: Device, dist: Path, engine: str) -> None:
    bundle = lend_bundle(dist, device.target, engine)
    program = load_program(folder)
    assert (program.method, [one.name for one in program.before]) == ("decode", ["prefill"])
    assert program.agreement is not None
    assert program.agreement.max_abs == 0.0
    settings = generating(folder, 20, DEFAULT)
    assert settings.executions == (19, 0), "prefill makes the first token"
    result = deploy(device, bundle, folder, settings, listeners=[])
    assert [(one.name, one.verdict) for one in result.outputs] == [
        ("output0", "identical"), ("output0 (prefill)", "identical"),
    ]  # fmt: skip
    assert result.path is not None
    tokens = numpy.load(result.path.with_suffix("") / "output0.npy")[0].tolist()
    assert tokens == [*spoken()[:20], *[0] * 12]
    (ran,) = result.methods
    assert (ran.name, ran.latency_ms > 0) == ("prefill", True)
    prompt, generated = report.generated(result)
    assert (prompt[0], generated[0]) == ("prompt, at once", "generated")
    assert (prompt[1].split(",")[0], generated[1].split(",")[0]) == ("3 tokens", "19 tokens")
    alone = deploy(device, bundle, folder, Settings(method="prefill", num_executions=1, warmup=0), listeners=[])
    assert (alone.verdict, alone.program.method, len(alone.outputs)) == ("identical", "prefill", 1)


@pytest.mark.parametrize("scheme", ["qd8_qb4w"])
def test_methods_in_a_scheme_generate_the_hosts_tokens(device: Device, dist: Path, tmp_path: Path, scheme: str) -> None:
    folder = export(MODEL, scheme, out=tmp_path)
    program = load_program(folder)
    assert program.quantization.skipped == ()
    assert not [one for one in program.warnings if "calibrated on" not in one]
    # Upstream's quantizer would make floats of the tokens in qs8.
    assert {one.dtype for one in (*program.outputs, *program.before[0].outputs)} == {"int64"}
    for engine in ("lean", "executorch"):
        bundle = lend_bundle(dist, device.target, engine)
        result = deploy(device, bundle, folder, generating(folder, 32, DEFAULT), listeners=[])
        assert [one.verdict for one in result.outputs] == ["identical", "identical"]
        assert result.path is not None
        tokens = numpy.load(result.path.with_suffix("") / "output0.npy")[0].tolist()
        assert tokens == numpy.load(folder / program.executions[31][0].file)[0].tolist()
        assert len(set(tokens)) > 4, "tokens that are all the same prove little"


def test_a_method_is_calibrated_with_the_state_that_those_before_leave(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom models.methods import Methods\n\n\nclass Kept(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.Linear(8, 8)\n"
        "        self.register_buffer('kept', torch.zeros(1, 8))\n\n"
        "    def put(self, x):\n        self.kept.copy_(x)\n        return x + 0.0\n\n"
        "    def use(self, x):\n        y = self.layer(self.kept)\n        self.kept.copy_(self.kept + 0 * x)\n"
        "        return y\n\n\n"
        "def make():\n    torch.manual_seed(0)\n"
        "    return Kept(), Methods(put=(torch.randn(1, 8) * 20,), use=(torch.ones(1, 8),))\n"
    )
    program = load_program(export(f"{tmp_path / 'net.py'}:make", "qs8", out=tmp_path / "out"))
    assert not [one for one in program.warnings if "away from the model" in one]


def test_what_one_method_gets_wrong_is_seen(folder: Path, device: Device, dist: Path, tmp_path: Path) -> None:
    bundle = lend_bundle(dist, device.target, "lean")
    changed = shutil.copytree(folder, tmp_path / folder.name)
    other = numpy.load(changed / "output0-prefill.npy")
    other[0, 0] += 1
    numpy.save(changed / "output0-prefill.npy", other)
    result = deploy(device, bundle, changed, listeners=[])
    assert [one.name for one in result.outputs if one.verdict == "differs"] == ["output0 (prefill)"]
    prompt = numpy.load(changed / "input0-prefill.npy")
    numpy.save(changed / "input0-prefill.npy", prompt + 1)
    assert deploy(device, bundle, changed, listeners=[]).outputs[0].verdict == "differs", "another prompt's state"
    with pytest.raises(UsageError, match="has no execution 11"):
        deploy(device, bundle, folder, Settings(method="prefill"), listeners=[])


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
