"""From export to checked result: .onnx programs of the zoo and of one's own. Refusals: test_onnxruntime.py."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from core.environment import ensure_onnx
from core.errors import ProgramError
from tests.conftest import Inv
from tests.support.processes import well

pytestmark = [pytest.mark.build, pytest.mark.export]


def _deploy(inv: Inv, *words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(well(inv("deploy", *words, "--json", timeout=1200)).stdout)
    return result


@pytest.mark.parametrize(("model", "scheme"), [("conv", "qs8"), ("mixed", "fp32")])
def test_both_providers(inv: Inv, model: str, scheme: str) -> None:
    """The zoo's other models: test_zoo.py."""
    words = ("--device", "local", "--engine", "onnxruntime", "--model", model, "--scheme", scheme)
    result = _deploy(inv, *words)
    assert result["bundle"]["engine"] == "onnxruntime"
    assert result["runner"]["settings"]["provider"] == "xnnpack"
    plain = _deploy(inv, *words, "--provider", "cpu")
    assert set(plain["runner"]["placement"]["coverage"]) == {"CPUExecutionProvider"}
    assert all(output["max_abs"] <= 1e-5 for output in plain["outputs"]), "the same kernels as the reference's"


@pytest.mark.virtual
@pytest.mark.parametrize(("device", "scheme"), [("pi", "fp32"), ("local", "qs8")])
def test_mobilenets_convolutions_are_the_providers(inv: Inv, device: str, scheme: str) -> None:
    words = ("--device", device, "--engine", "onnxruntime", "--model", "mobilenet_v2", "--scheme", scheme)
    result = _deploy(inv, *words)
    assert result["verdict"] in ("identical", "agrees")
    assert result["emulated"] is (device == "pi")
    ran = result["runner"]["placement"]
    convolution = "Conv" if scheme == "fp32" else "QLinearConv"
    taken = [node["operator"] for node in ran["nodes"] if "Xnnpack" in node["provider"]]
    assert taken.count(convolution) == 52
    assert "kept from" not in " ".join(ran["hints"])


@pytest.fixture
def mine(inv: Inv, tmp_path: Path) -> Path:
    done = inv("export", "--format", "onnx", "--model", "mlp", "--json")
    return Path(shutil.copy(Path(json.loads(done.stdout)["path"]) / "model.onnx", tmp_path / "mine.onnx"))


def _a_weight_of_its_own(model: Any) -> None:
    """Change the first weights a little and otherwise than ever before, so that no store has them already."""
    from onnx import numpy_helper

    first = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(first).copy()
    values.flat[0] += numpy.float32(0.001 + random.random() / 1000)  # noqa: S311 - not a secret
    first.CopyFrom(numpy_helper.from_array(values, first.name))


def test_a_file_of_ones_own_is_compared_with_this_machines_runtime(inv: Inv, mine: Path) -> None:
    result = _deploy(inv, "--device", "local", "--model", str(mine), "--profile")
    assert result["verdict"] in ("identical", "agrees")
    assert result["program"]["reference_engine"].startswith("onnxruntime ")
    assert {row["operator"] for row in result["runner"]["profile"]} >= {"Gemm"}


def test_weights_in_a_second_file_go_with_it(inv: Inv, mine: Path) -> None:
    ensure_onnx()
    import onnx

    model = onnx.load(mine)
    _a_weight_of_its_own(model)
    onnx.save(model, mine, save_as_external_data=True, location="mine.weights", size_threshold=0)
    result = _deploy(inv, "--device", "local", "--model", str(mine))
    assert result["verdict"] in ("identical", "agrees")
    assert "mine.weights" in result["upload"]["names"]
    mine.with_name("mine.weights").unlink()
    lost = inv("deploy", "--device", "local", "--model", str(mine), "--json")
    assert (lost.returncode, json.loads(lost.stdout)["error"]) == (10, "program")
    assert "mine.weights" in lost.stdout


def test_rows_that_are_not_fixed_are_computed_rightly(inv: Inv, tmp_path: Path) -> None:
    """The provider alone would get them wrong: the engine keeps them from it, unless they are fixed."""
    ensure_onnx()
    import onnx

    from tests.support.provider_forms import FORMS

    file, rows = tmp_path / "rows.onnx", tmp_path / "rows.npy"
    onnx.save(next(form for form in FORMS if form.name == "gemm-rows").model(), file)
    numpy.save(rows, numpy.linspace(-1, 1, 7 * 16, dtype=numpy.float32).reshape(7, 16))
    for words, said in (
        (("--inputs", str(rows)), "kept from the XNNPACK provider"),
        (("--inputs", "7x16"), "were fixed for this session by --input_shapes 7x16"),
    ):
        result = _deploy(inv, "--device", "local", "--model", str(file), *words)
        assert result["verdict"] in ("identical", "agrees")
        assert result["outputs"][0]["shape"] == [7, 24]
        assert said in " ".join(result["runner"]["placement"]["hints"])


def test_a_gemm_without_a_bias_gets_one_of_zeros() -> None:
    ensure_onnx()
    import onnx
    from onnx.reference import ReferenceEvaluator

    from models.onnx.making import add_zero_biases
    from tests.support.onnx_graph import Graph

    for transposed in (0, 1):
        graph = Graph("gemm", 18)
        shape = (5, 3) if transposed else (3, 5)
        model = graph.model(graph.node("Gemm", graph.input(2, 3), graph.weights(*shape), transB=transposed))
        given = {"input0": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)}
        (before,) = ReferenceEvaluator(model).run(None, given)
        assert add_zero_biases(model) == 1
        onnx.checker.check_model(model, full_check=True)
        (after,) = ReferenceEvaluator(model).run(None, given)
        assert numpy.array_equal(before, after)
        assert add_zero_biases(model) == 0


def test_ones_for_inputs_are_those_of_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_onnx()
    import onnx

    from models.onnx.host import Reference, run
    from tests.support.onnx_graph import Graph

    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    graph = Graph("sum", 18)
    file = tmp_path / "sum.onnx"
    onnx.save(graph.model(graph.node("Add", graph.input("n", 3), graph.input(3))), file)

    def output(found: Reference) -> numpy.ndarray[Any, Any]:
        return numpy.asarray(numpy.load(found.outputs[0]))

    plain = run(file)
    assert numpy.array_equal(output(plain), numpy.full((1, 3), 2, numpy.float32))
    assert plain.tolerances[0].atol == 1e-5
    assert output(run(file, shapes="4x3,3")).shape == (4, 3)
    given = numpy.arange(3, dtype=numpy.float32)
    numpy.save(tmp_path / "x.npy", given[None])
    numpy.save(tmp_path / "y.npy", given)
    assert numpy.array_equal(output(run(file, inputs=[tmp_path / "x.npy", tmp_path / "y.npy"])), 2 * given[None])

    stamp = plain.outputs[0].stat().st_mtime_ns
    assert run(file).outputs[0].stat().st_mtime_ns == stamp, "the same again is not computed again"
    with pytest.raises(ProgramError, match="does not run on this machine's ONNX Runtime") as caught:
        run(file, shapes="4x3")
    assert "2 inputs, 1 shapes" in caught.value.cause


if TYPE_CHECKING:
    from tests.support.provider_forms import Run

XNNPACK = "XnnpackExecutionProvider"


def test_the_rules_hold_at_their_limits(tmp_path: Path) -> None:
    """What becomes of an operator, guarded and trusted."""
    ensure_onnx()
    from tests.support.provider_forms import FORMS, execute
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", "onnxruntime")
    for form in FORMS:
        model = form.model()
        cpu, guarded, bare = (
            execute(bundle, model, tmp_path, *flags)
            for flags in (["--provider=cpu"], ["--provider=xnnpack"], ["--provider=xnnpack", "--trust_provider"])
        )
        assert not cpu.failure, (form.name, cpu.failure)
        assert not guarded.failure, (form.name, guarded.failure)
        assert _near(guarded, cpu, form.near), form.name
        ran = {provider for operator, provider in guarded.placed if operator == form.operator}
        assert ran == {XNNPACK if form.taken else "CPUExecutionProvider"}, (form.name, guarded.placed)
        assert form.luck or _near(bare, cpu, form.near) is form.trusted, (form.name, bare.failure)
        assert form.trusted or guarded.kept, form.name


def _near(run: Run, cpu: Run, limit: float) -> bool:
    """Whether a model ran and gave what the CPU provider gave."""
    return not run.failure and all(
        got.shape == want.shape and float(numpy.abs(got.astype(float) - want.astype(float)).max()) <= limit
        for got, want in zip(run.outputs, cpu.outputs, strict=True)
    )
