"""Models of a user's own: what they read, keep between executions and bring along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.errors import ExportError
from core.paths import cache_dir
from core.program import load_program
from models import is_current
from models.export import export
from models.host import Host

pytestmark = pytest.mark.export


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One runtime for all tests: starting it costs more than a small export."""
    with Host(cache_dir("logs") / "export-tests.log") as one:
        yield one


def test_retrained_weights_and_only_changed_models_are_exported(
    tmp_path: Path, host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    weights = tmp_path / "weights.pt"
    torch.save({"bias": torch.zeros(4)}, weights)
    file = tmp_path / "net.py"
    text = (
        "import torch\nfrom pathlib import Path\n\n\nclass Trained(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.bias = torch.load(Path(__file__).parent / 'weights.pt')['bias']\n\n"
        "    def forward(self, x):\n        return x + self.bias\n\n\n"
        "def trained():\n    return Trained(), (torch.ones(2, 4),)\n\n\n"
        "def plain():\n    return torch.nn.ReLU(), (torch.ones(2, 4),)\n"
    )
    file.write_text(text)
    models = f"{file}:trained", f"{file}:plain"

    def outputs() -> list[Any]:
        return [numpy.load(export(model, out=tmp_path / "out", host=host) / "output0.npy")[0, 0] for model in models]

    assert outputs() == [1.0, 1.0]
    assert [is_current(model, out=tmp_path / "out") for model in models] == [True, True]
    torch.save({"bias": torch.ones(4)}, weights)
    assert [is_current(model, out=tmp_path / "out") for model in models] == [False, True]
    capfd.readouterr()
    assert outputs() == [2.0, 1.0]
    assert f"exporting again: {weights} has changed" in capfd.readouterr().err.replace("\n", "")
    file.write_text(text.replace("return x + self.bias", "return x - self.bias"))
    assert [is_current(model, out=tmp_path / "out") for model in models] == [False, True]
    program = load_program(export(models[0], options={"depends": "env:MY_STEP"}, out=tmp_path / "out", host=host))
    assert set(program.depends["variables"]) == {"MY_STEP"}
    with pytest.raises(ExportError, match="no file nowhere"):
        export(models[0], options={"depends": "nowhere"}, out=tmp_path / "out", host=host)
