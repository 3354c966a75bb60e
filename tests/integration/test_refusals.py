"""What upstream refuses: parts of a program, whose rest comes through, and whole ones, with the cause and a way on."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

from core.errors import ExportError
from core.formats.program import load_program
from core.paths import ROOT
from models.export import RECORD, export
from models.lowering.progress import log_path

pytestmark = pytest.mark.export

FIXTURE = ROOT / "tests" / "fixtures" / "models" / "refused.py"
NORM = "aten::_native_batch_norm_legit_no_training"
FIXES = "a size change that the model fixes"


def test_what_lowering_refuses_is_outside_and_the_sound_one_beside_it_inside(tmp_path: Path) -> None:
    program = load_program(export(f"{FIXTURE}:refused", "fp32", out=tmp_path))
    inside = {one.name.removesuffix(".default").removesuffix(".dim"): one.count for one in program.delegated}
    outside = {one.name: one.why for one in program.undelegated}
    refuses = "XnnpackPartitioner: its lowering refuses"
    assert inside["aten::convolution"] == inside["aten::linear"] == inside["aten::prelu"] == inside["aten::max"] == 1
    assert outside["aten::max.dim_max"] == (
        f"{refuses} aten::max.dim: RuntimeError: amax.default only supports keep_dim == True"
    )
    assert f"{refuses} aten::prelu: AssertionError: " in outside["aten::mul.out"], "of which PReLU is made"
    assert inside[NORM] == 1
    assert f"{refuses} {NORM}: KeyError: " in outside[f"{NORM}.out"]
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    assert [one for one in program.warnings if "calibrated" not in one] == []
    assert (program.etrecord, RECORD in program.files) == (RECORD, True)
    log = log_path("refused-refused-fp32").read_text(encoding="utf-8")
    assert "op_max_dim.py" in log, "upstream's traceback"


# fp32 is the sample that CI runs; test_verdicts.py has a layer that is called twice in qs8.
@pytest.mark.parametrize("scheme", ["fp32", pytest.param("qs8", marks=pytest.mark.long)])
def test_weights_that_a_layer_packs_are_read_otherwise_outside(tmp_path: Path, scheme: str) -> None:
    """Upstream's runtime crashes on a delegate with both; a layer that reads them the same way is inside."""
    program = load_program(export(f"{FIXTURE}:shared", scheme, out=tmp_path))
    inside = {one.name.removesuffix(".default"): one.count for one in program.delegated}
    outside = {one.name: one for one in program.undelegated}
    why = "XnnpackPartitioner: it reads p_conv_weight, which a delegate packs for another operator alone"
    if scheme == "fp32":
        assert inside["aten::convolution"] == 2
        assert (outside["aten::mul.out"].why, outside["aten::convolution.out"].why) == (why, why)
    else:  # each has weights of its own; upstream does not lower what it made of the transposed one's
        assert inside["aten::convolution"] == 2
        assert "its lowering refuses aten::convolution: IndexError" in outside["aten::convolution.out"].why
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    expected = [] if scheme == "fp32" else ["not quantized: _frozen_param3 (conv_transpose2d 5x3x3x3)"]
    assert [one.split(": quantized,")[0] for one in program.warnings if "calibrated" not in one] == expected


def test_values_of_seven_dimensions_are_outside_and_those_of_six_inside(tmp_path: Path) -> None:
    program = load_program(export(f"{FIXTURE}:deep", "fp32", out=tmp_path))
    inside = {one.name.removesuffix(".default"): one.count for one in program.delegated}
    outside = {one.name: one.why for one in program.undelegated}
    assert inside["aten::linear"] == inside["aten::relu"] == 1
    assert inside["aten::add.Tensor"] == 2, "of the values of six dimensions, and the last"
    why = "XnnpackPartitioner: a value has 7 dimensions, and XNNPACK takes at most 6"
    assert outside["aten::add.out"] == outside["aten::relu.out"] == why
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit


def test_a_record_that_upstream_cannot_write_costs_the_record_alone(tmp_path: Path) -> None:
    path = export(f"{FIXTURE}:choosing", out=tmp_path)
    program = load_program(path)
    assert (program.etrecord, (path / RECORD).exists(), RECORD in program.files) == ("", False, False)
    assert [one.name for one in program.delegated] == ["aten::linear"], "not the one in a branch"
    assert "aten::addmm.out" in [one.name for one in program.undelegated]
    (warning,) = program.warnings
    assert warning.startswith("upstream cannot write the program's ETRecord (SerializeError: ")
    assert "Traceback" in log_path("refused-choosing-fp32").read_text(encoding="utf-8")


def chain() -> Any:
    """A module of operators that XNNPACK takes, one after the other, and its inputs."""
    import torch

    class Chain(torch.nn.Module):  # type: ignore[misc]  # torch's types are not read here
        def forward(self, x: Any) -> Any:
            return torch.relu(torch.cos(torch.sin(torch.abs(x))))

    return Chain(), (torch.ones(3),)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the lowering of delegates fail with ``error`` where ``test`` holds of the names of their operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend

    compile_ = XnnpackBackend.preprocess

    def make(error: Exception, test: Any) -> list[set[str]]:
        seen: list[set[str]] = []

        def preprocess(program: Any, specs: Any) -> Any:
            names = {one.target.__name__.split(".")[1] for one in program.graph.nodes if one.op == "call_function"}
            seen.append(names)
            if test(names):
                raise error
            return compile_(program, specs)

        monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(preprocess))
        return seen

    return make


def test_what_is_not_taken_whole_is_outside_for_the_reason_given_then() -> None:
    failing = importlib.import_module("tests.fixtures.models.failing")
    said = "XnnpackPartitioner: ceil mode is not supported for dynamic shapes (aten::max_pool2d)"
    assert lower(*failing.evened()).outside == {"aten::max_pool2d_with_indices": [said]}
    net, inputs, _ = failing.pooled()
    assert lower(net, inputs).outside == {}, "the same pool with one size"


def test_a_combination_that_nobody_foresaw_is_taken_apart(refusing: Any) -> None:
    seen = refusing(ValueError("not both"), lambda names: {"sin", "cos"} <= names)
    lowered = lower(*chain())
    assert lowered.inside == {"aten::abs": 1, "aten::sin": 1, "aten::relu": 1}
    assert lowered.outside == {
        "aten::cos": ["XnnpackPartitioner: its lowering refuses aten::cos: ValueError: not both"]
    }
    assert sorted(map(sorted, seen[-2:])) == [["abs", "sin"], ["relu"]], "delegates as large as they can be"


def test_a_failure_of_the_machine_leaves_no_operator_outside(refusing: Any) -> None:
    seen = refusing(OSError("No space left on device"), lambda _: True)
    with pytest.raises(ExportError, match="No space left"):
        lower(*chain())
    assert len(seen) == 1, "nothing else is tried"


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
        ("fixed", "", FIXES, "leave that size out of dynamic_shapes", ""),
        ("unrolled", "", FIXES, "leave that size out of dynamic_shapes", ""),
        ("pooled", "Suggested fixes: _height = Dim", FIXES, "as the message suggests", ""),
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
