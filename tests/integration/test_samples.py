"""Samples: calibration sees all but the reference's, weights see a cat; and ``./inv compare``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from core.errors import ConfigError, UsageError
from core.formats.program import load_program
from core.paths import programs_dir
from models.export import export
from models.loading import Prepared, load
from models.request import Request, resolve
from models.samples import taking
from models.samples.taking import Taken, take
from models.zoo import trained
from tests.conftest import Inv
from tests.support.processes import well

pytestmark = pytest.mark.export

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(torch.relu(self.conv(x)).mean((2, 3)))

def bare():
    torch.manual_seed(1)
    return Net(), (torch.randn(1, 3, 16, 16),)

def noisy():
    return *bare(), None, [(torch.randn(1, 3, 16, 16),) for _ in range(3)]
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's file, and beside it ``photos`` with two classes of six pictures."""
    folder = tmp_path_factory.mktemp("net")
    (folder / "net.py").write_text(NET)
    for place, name in enumerate(("dark", "light")):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = np.full((20, 20, 3), 40 + 150 * place + number, np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.png")
    return folder / "net.py"


def _taken(request: Request) -> Taken:
    return take(request, load(request))


def test_calibration_without_samples_is_told(net: Path) -> None:
    assert "calibrated on the example inputs only" in _taken(resolve(f"{net}:bare", "qs8")).warnings[0]
    assert _taken(resolve(f"{net}:noisy", "qs8")).warnings == ()
    assert _taken(resolve(f"{net}:bare", "fp32")).warnings == (), "nothing is calibrated"
    assert _taken(resolve("mlp", "qs8")).warnings == (), "random weights are right with random inputs"


def test_the_reference_is_of_a_sample_that_calibration_does_not_see(net: Path) -> None:
    photos = str(net.parent / "photos")
    taken = _taken(resolve(f"{net}:noisy", "qs8", options={"samples": photos}))
    (shown,), seen = taken.model.inputs, list(taken.model.calibration)
    assert len(seen) == 11
    assert not any(torch.equal(one[0], shown) for one in seen)
    assert "normalized as ImageNet's" in taken.warnings[0]
    assert not any("random" in one for one in taken.warnings)
    assert _taken(resolve(f"{net}:noisy", "fp32", options={"samples": photos})).model.calibration == ()
    np.savez(net.parent / "one.npz", x=np.ones((1, 3, 16, 16), np.float32))
    alone = _taken(resolve(f"{net}:bare", "qs8", options={"samples": str(net.parent / "one.npz")}))
    assert alone.warnings == (
        f"{net.parent / 'one.npz'} has one sample: the program is checked on what it was calibrated with",
    )


def test_samples_that_do_not_fit_are_refused(net: Path) -> None:
    np.savez(net.parent / "large.npz", x=np.ones((4, 3, 32, 32), np.float32))
    with pytest.raises(UsageError, match="32x32"):
        _taken(resolve(f"{net}:bare", "qs8", options={"samples": str(net.parent / "large.npz")}))
    request = resolve("mlp", "qs8", options={"samples": str(net.parent / "photos")})
    with pytest.raises(UsageError, match="does not take one"):
        _taken(request)
    made = load(resolve(f"{net}:bare"))
    several = Prepared(made.module, made.inputs, None, (), before=(made,))
    with pytest.raises(ConfigError, match="models with one method"):
        take(request, several)


@pytest.mark.parametrize("format", ["pte", "onnx"])
def test_an_export_with_samples(net: Path, tmp_path: Path, format: str) -> None:  # noqa: A002
    photos = str(net.parent / "photos")
    path = export(f"{net}:bare", "qs8", options={"samples": photos}, out=tmp_path, format=format)
    program = load_program(path)
    assert program.agreement is not None
    assert program.agreement.max_abs < program.agreement.limit
    model = _taken(resolve(f"{net}:bare", "qs8", options={"samples": photos})).model
    assert np.array_equal(np.load(path / "input0.npy"), model.inputs[0].numpy())
    with torch.no_grad():
        want = model.module(*model.inputs).numpy()
    assert np.abs(np.load(path / "output0.npy") - want).max() <= program.agreement.max_abs + 1e-6


def test_trained_weights_see_a_cat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(trained.WEIGHTS)
    trained.fetch(["mobilenet_v2"])
    request = resolve("mobilenet_v2", "qs8")
    assert request.name == "mobilenet_v2-qs8-trained"
    taken = _taken(request)
    assert (len(taken.model.calibration), taken.warnings) == (10, ())
    with torch.no_grad():
        scores = taken.model.module(*taken.model.inputs)
    best = scores.softmax(-1)[0].topk(3)
    found = taking.classes(request, taken, scores, tmp_path)
    assert found is not None
    assert found.picture == "chelsea.png, a tabby cat"
    names = trained.load_trained()["mobilenet_v2"].names
    assert [names[at] for at in best.indices] == ["Egyptian cat", "tiger cat", "tabby"]
    assert 0.6 < float(best.values[0]) < 0.8
    photos = resolve("mobilenet_v2", "qs8", options={"weights": "random"})
    assert taking.classes(photos, _taken(photos), scores, tmp_path) is None, "random weights name nothing"


@pytest.mark.build
def test_a_labelled_file(inv: Inv, tmp_path: Path) -> None:
    folder = export("mlp", "fp32")
    assert folder.parent == programs_dir()
    want = np.load(folder / "output0.npy")
    rows = np.load(folder / "input0.npy")
    labels = want.argmax(axis=1)
    labels[0] = want[0].argsort()[-2]  # one of ten rows has the second best as its label
    repeated, planted = np.concatenate([rows, rows[1:3]]), np.concatenate([labels, labels[1:3]])
    np.savez(tmp_path / "rows.npz", rows=repeated, labels=planted)
    (tmp_path / "own.py").write_text(
        "def count(outputs, labels):\n    return sum(len(one) for one in labels) + outputs[0][0].shape[1] / 100\n"
    )
    words = ["--model", "mlp", "--schemes", "fp32,fp16,qd8_qb4w", "--engines", "lean", "--json"]
    words += ["--num-executions", "5", "--samples", str(tmp_path / "rows.npz")]
    found = json.loads(well(inv("compare", *words, "--metric", f"{tmp_path / 'own.py'}:count")).stdout)
    assert (found["samples"], found["of"], found["by"]) == (2, 2, "metric")
    assert found["reference"] == {"cosine": 1.0, "psnr": "Infinity", "top1": 0.9, "top5": 1.0, "metric": 10.1}
    exact, half, coarse = found["rows"]
    assert exact["accuracy"]["top1"] == half["accuracy"]["top1"] == 0.9
    assert exact["accuracy"]["psnr"] > 100 > half["accuracy"]["psnr"] > 60 > coarse["accuracy"]["psnr"] > 20
    assert exact["program_bytes"] > half["program_bytes"] > coarse["program_bytes"] > 0
    assert coarse["front"]
    assert all(one["latency"]["p50"] > 0 and one["latency"]["load"] > 0 for one in found["rows"])
    assert all(one["peak_rss_bytes"] > 1 << 20 for one in found["rows"])
    assert json.loads((Path(found["folder"]) / "compare.json").read_text(encoding="utf-8"))["rows"] == found["rows"]

    broken = inv("compare", *words, "--metric", f"{tmp_path / 'own.py'}:missing")
    assert broken.returncode == 3
    assert "it has count" in broken.stderr
