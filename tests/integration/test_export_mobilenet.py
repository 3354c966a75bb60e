"""MobileNetV2: torchvision's architecture and names, and the one export here that takes long."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy
import pytest

from core.errors import ExportError
from core.formats.program import load_program
from models.export import export
from models.request import resolve

pytestmark = pytest.mark.export


def test_mobilenet() -> None:
    """The program that other tests deploy: exported again only when its key has changed."""
    path = export("mobilenet_v2", "qs8")
    program = load_program(path)
    assert (program.delegates, program.undelegated) == (1, ())
    assert (program.quantization.skipped, program.warnings) == ((), ())
    assert 3_500_000 < program.size < 4_000_000
    assert program.inputs[0].shape == (1, 3, 224, 224)
    assert program.outputs[0].shape == (1, 1000)
    inside = {one.name: one.count for one in program.delegated}
    assert inside["aten::convolution"] == 52
    output = numpy.load(path / "output0.npy")
    assert 1 < output.max() - output.min() < 50
    assert json.loads((path / "program.json").read_text())["model"] == "mobilenet_v2"


def test_mobilenet_is_torchvisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from models import loading
    from models.nets.mobilenet_v2 import PARAMETERS, MobileNetV2

    net = MobileNetV2()
    assert sum(one.numel() for one in net.parameters()) == PARAMETERS == 3_504_872
    names = list(net.state_dict())
    assert len(names) == 314
    assert names[0] == "features.0.0.weight"
    assert {"features.1.conv.1.weight", "features.2.conv.1.0.weight", "features.18.1.running_var"} <= set(names)
    assert names[-2:] == ["classifier.1.weight", "classifier.1.bias"]

    file = tmp_path / "weights.pth"
    state = {name: torch.zeros_like(one) for name, one in net.state_dict().items()}
    state["classifier.1.bias"] = torch.arange(1000.0)
    torch.save(state, file)
    monkeypatch.setenv("SLIPWAY_WEIGHTS", str(file))
    model = loading.load(resolve("mobilenet_v2"))
    with torch.no_grad():
        assert torch.equal(model.module(*model.inputs)[0], torch.arange(1000.0))

    del state["classifier.1.bias"]
    torch.save(state, file)
    with pytest.raises(ExportError, match="does not hold weights for mobilenet_v2") as caught:
        loading.load(resolve("mobilenet_v2"))
    assert "classifier.1.bias" in caught.value.cause
    file.write_bytes(os.urandom(1000))
    with pytest.raises(ExportError, match="does not hold weights"):
        loading.load(resolve("mobilenet_v2"))
