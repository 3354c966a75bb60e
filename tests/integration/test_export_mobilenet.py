"""MobileNetV2 has torchvision's architecture and names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.errors import ExportError
from models.request import resolve

pytestmark = pytest.mark.export


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
