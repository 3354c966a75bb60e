"""What users read when a model cannot be exported: the line of their code, the cause, a next step that works."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

from core.errors import ExportError

pytestmark = pytest.mark.export


def fixture(name: str) -> Any:
    return getattr(importlib.import_module("tests.fixtures.models.failing"), name)()


def lower(net: Any, inputs: Any, shapes: Any = None, *, partitioners: tuple[str, ...] = ("xnnpack",)) -> Any:
    """Export and lower, as ``./inv export`` does."""
    from models.lowering.lowering import lower_all
    from models.lowering.quantize import capture
    from models.request.options import Options
    from models.request.partitioners import make

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, which go to the log
        return lower_all({"forward": capture(net, inputs, shapes)}, make(partitioners, Options()))["forward"]


@pytest.mark.parametrize(
    ("name", "line", "why", "hint", "module"),
    [
        ("sized", "count = int(x[0, 0].item())", "numbers in a tensor decide", "a mask instead of a slice", ""),
        ("branching", "if x.mean() > 0:", "numbers in a tensor decide", "torch.where(condition, a, b)", " of 1.0: "),
        ("waiting", "while x.sum() < 10:", "numbers in a tensor decide", "a fixed number of turns", ""),
        ("looping", "while_loop(lambda one", "and no while_loop", "torch.where(condition, new, old)", ""),
        ("converting", "torch.from_numpy(x.numpy() * 2)", "leaves PyTorch for NumPy", "torch's function", ""),
        ("fixed", "", "a size change that the model fixes", "leave that size out of dynamic_shapes", ""),
        ("unrolled", "", "exports an LSTM, a GRU or an RNN step by step", "--format onnx", ""),
        ("beside", "", "a size change that the model fixes", "leave that size out of dynamic_shapes", ""),
        ("pooled", "Suggested fixes: _height = Dim", "a pool with ceil_mode=True has", "that the message suggests", ""),
        ("writing", 'x * float(f"{x.max():.2f}")', "into text", "leave the text out", ""),
        ("wrapping", "", "returns an object of a class", "a dictionary of them", ""),
        ("changing", "", "changes a parameter", "weight * 0.5 instead of weight.mul_(0.5)", ""),
        ("inverting", "torch.linalg.inv(x) + 1", "raises an error when it meets", "inv_ex(x).inverse", " of 0: "),
        ("expanded", "", "repeats its numbers without a copy", "x.contiguous()", ""),
        ("calling", "torch.ops.slipway_fixture.twice(x)", "has no kernel for an operator", "own operators", ""),
    ],
)
def test_a_known_cause_has_its_line_and_a_next_step(name: str, line: str, why: str, hint: str, module: str) -> None:
    with pytest.raises(ExportError) as caught:
        lower(*fixture(name))
    cause = caught.value.cause
    assert why in cause
    assert hint in caught.value.hint
    assert line in cause
    assert module in cause
    assert "failing.py, line" in cause or not line or "Suggested" in line
    assert cause.count("failing.py") <= 1, "once"
    assert "site-packages" not in cause
    assert len(cause.splitlines()) <= 3, "the cause, the line, and the exporter's own words"


@pytest.mark.parametrize("name", ["repaired", "narrowed", "advised", "copied", "stepped", "evened"])
def test_the_next_steps_work(name: str) -> None:
    assert lower(*fixture(name)).manager.buffer[4:8] == b"ET12"


@pytest.mark.parametrize("partitioners", [("xnnpack",), ("none",)])
def test_nobody_is_advised_to_do_what_he_did(partitioners: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    from models.lowering.refusals import Refusals

    def fail(*_: object) -> None:
        raise RuntimeError("nobody knows why")

    monkeypatch.setattr(Refusals, "lower", fail)
    with pytest.raises(ExportError, match="nobody knows why") as caught:
        lower(*fixture("narrowed")[:2], partitioners=partitioners)
    assert ("--partitioners none" in caught.value.hint) == (partitioners == ("xnnpack",))
    assert ("--format onnx" in caught.value.hint) == (partitioners == ("none",))
