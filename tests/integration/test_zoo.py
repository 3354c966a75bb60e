"""Every model of the zoo in every scheme and format: bit for bit upstream's here, within its tolerance elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.paths import matrix_dir
from deploy.matrix.model import CellResult, Output, load_matrix
from models.zoo import everything
from tests.conftest import Inv
from tests.support.processes import well
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

Cells = dict[tuple[str, str, str], CellResult]
"""A matrix's cells, by engine, model and scheme."""
FP32 = 1e-5
"""How far a float32 output on the Pi may be from the host's: sums are taken in another order, nothing else."""
SAMPLE = {
    ("linear", "qd8_qb4w"), ("conv", "qs8"), ("conv1x1", "fp32"), ("matmul", "fp16"), ("mlp", "qd8_qc8w"),
    ("mixed", "qd8_qb4w"), ("mobilenet_v2", "qs8"),
}  # fmt: skip
"""What is deployed to the Pi: every model and every scheme. Every pair runs on this machine, with all engines."""


@pytest.fixture(scope="module")
def exported(inv: Inv) -> None:
    """All of them, by one command for each format; those that are current already cost nothing."""
    for format_ in ("pte", "onnx"):
        well(inv("export", "--format", format_, "--model", "all", "--scheme", "all", timeout=1800))


@pytest.fixture(scope="module")
def lean(inv: Inv) -> None:
    """The engine's bundle; with an empty cache XNNPACK is compiled for it, which takes longer than a deploy may."""
    well(inv("build", "--target", host_target().name, "--engine", "lean", timeout=3600))


def _matrix(inv: Inv, device: str, engines: str, only: str = "") -> Cells:
    name = f"zoo-{device}-{os.getpid()}"
    words = ["--devices", device, "--engines", engines, "--models", "all", "--schemes", "all", "--name", name]
    words += ["--num-executions", "1", *(["--only", only] if only else [])]
    try:
        done = inv("matrix", *words, timeout=3600, env={"INVOKE_SLIPWAY_WARMUP": "0"})
        assert (matrix_dir(name) / "matrix.json").is_file(), done.stdout + done.stderr
        found = load_matrix(matrix_dir(name) / "matrix.json")
    finally:
        shutil.rmtree(matrix_dir(name), ignore_errors=True)
    assert done.returncode == 0 or any(cell.outcome != "passed" for cell in found.cells), done.stderr
    return {(cell.engine, cell.model, cell.scheme): cell for cell in found.cells}


@pytest.fixture(scope="module")
def here(inv: Inv, exported: None, lean: None) -> Cells:
    """What ``./inv matrix`` says of every program on this machine, with all engines."""
    return _matrix(inv, "local", "executorch,lean,onnxruntime")


@pytest.fixture(scope="module")
def on_the_pi(inv: Inv, exported: None) -> Cells:
    """What it says of the sample on the virtual Pi."""
    return _matrix(inv, "pi", "executorch", " | ".join(f"{model}-{scheme}" for model, scheme in sorted(SAMPLE)))


def _outputs(cells: Cells, engine: str, model: str, scheme: str) -> Sequence[Output]:
    cell = cells[engine, model, scheme]
    assert (cell.outcome, cell.problem) == ("passed", None)
    assert cell.outputs
    return cell.outputs


@pytest.mark.parametrize(("model", "scheme"), everything())
def test_bit_identical_on_this_machine(here: Cells, model: str, scheme: str) -> None:
    outputs = _outputs(here, "executorch", model, scheme)
    assert [output.verdict for output in outputs] == ["identical"] * len(outputs)


@pytest.mark.parametrize(("model", "scheme"), everything())
def test_the_lean_engine_agrees_with_upstreams(here: Cells, model: str, scheme: str) -> None:
    for output in _outputs(here, "lean", model, scheme):
        assert output.verdict in ("identical", "agrees"), output
        if scheme == "qs8":
            assert output.verdict == "identical", "integer arithmetic is exact"


@pytest.mark.parametrize(("model", "scheme"), everything("onnx"))
def test_onnx_runtime_agrees_with_the_published_one(here: Cells, model: str, scheme: str) -> None:
    assert {output.verdict for output in _outputs(here, "onnxruntime", model, scheme)} <= {"identical", "agrees"}


@pytest.mark.virtual
@pytest.mark.parametrize(("model", "scheme"), sorted(SAMPLE))
def test_agrees_on_the_virtual_pi(on_the_pi: Cells, model: str, scheme: str) -> None:
    for output in _outputs(on_the_pi, "executorch", model, scheme):
        assert output.verdict in ("identical", "agrees"), output
        if scheme in ("fp32", "qd8_qc8w", "qd8_qb4w"):
            assert output.max_abs is not None and output.max_abs <= FP32, output
        if scheme == "qs8":
            assert output.verdict == "identical", "integer arithmetic is exact"


def test_quantized_operators_outside_a_delegate_run_too(inv: Inv, tmp_path: Path) -> None:
    # Into a folder of its own: other tests deploy the program that has this name in dist/programs.
    words = ("export", "--model", "mlp", "--scheme", "qs8", "--partitioners", "none", "--json")
    program = json.loads(well(inv(*words, timeout=600, env={"SLIPWAY_DIST": str(tmp_path)})).stdout)
    outside = [one["name"] for one in program["undelegated"]]
    assert any(name.startswith("quantized_decomposed::") for name in outside), outside
    done = inv("deploy", "--device", "local", "--model", program["path"], "--json", timeout=600)
    outputs = json.loads(well(done).stdout)["outputs"]
    assert outputs and all(output["verdict"] in ("identical", "agrees") for output in outputs)
