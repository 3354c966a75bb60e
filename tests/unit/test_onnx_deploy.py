"""Deploying .onnx files: engines and formats, files of weights, what the preflight says of providers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.errors import MissingOperatorError, ProgramError, UsageError
from core.formats.program import Tolerance
from deploy.run.engine_flags import engine_flags
from deploy.run.job import Computed, check_engine, load_job
from deploy.run.needs import Method, ProgramFacts, ProgramNeeds, lacking
from deploy.run.preflight import check, failure
from deploy.run.runner import Node
from tests.unit.test_preflight import FACTS, PI, bundle


def test_engines_read_their_format_and_take_their_flags() -> None:
    for name, engine in (("a.onnx", "onnxruntime"), ("a.ort", "onnxruntime"), ("a.pte", "executorch"), ("a.pte", "")):
        check_engine(Path(name), engine)
    with pytest.raises(UsageError, match=r"executorch reads .pte files, and a.ONNX is an .onnx") as wrong:
        check_engine(Path("a.ONNX"), "executorch")
    assert "--engine onnxruntime" in wrong.value.hint
    with pytest.raises(UsageError, match=r"onnxruntime reads .onnx files, and a.pte is a .pte"):
        check_engine(Path("a.pte"), "onnxruntime")
    assert engine_flags("executorch") == []
    assert engine_flags("onnxruntime", provider="cpu", profile=True) == ["--provider=cpu", "--profile"]
    assert engine_flags("lean", profile=True) == engine_flags("", profile=True) == ["--profile"]
    with pytest.raises(UsageError, match="no provider 'gpu'"):
        engine_flags("onnxruntime", provider="gpu")
    with pytest.raises(UsageError, match="--provider is for the engine onnxruntime"):
        engine_flags("executorch", provider="cpu")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "some.onnx"
    file.write_bytes(b"model")
    return file


def test_the_run_folder_keeps_the_suffix_and_takes_weights_and_references_along(model: Path, tmp_path: Path) -> None:
    assert list(load_job(model).files) == ["model.onnx"]
    for name, stored in (("a.ort", "model.ort"), ("a.PTE", "model.pte"), ("a.bin", "model.pte")):
        (tmp_path / name).write_bytes(b"x")
        assert list(load_job(tmp_path / name).files) == [stored]
    (tmp_path / "some.weights").write_bytes(b"12345")
    job = load_job(model).with_data(["some.weights"])
    assert {name: blob.size for name, blob in job.files.items()} == {"model.onnx": 5, "some.weights": 5}
    np.save(tmp_path / "y.npy", np.ones(3))
    tolerance = Tolerance(atol=1, rtol=0, why="")
    job = load_job(model).with_reference(Computed((tmp_path / "y.npy",), (tolerance,), "onnxruntime 1"))
    assert (job.references, job.tolerances, job.reference_engine) == (
        (tmp_path / "y.npy",), (tolerance,), "onnxruntime 1",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gone.weights", "sub/w.bin", "../w.bin", "/etc/passwd", "model.onnx", ""])
def test_weights_elsewhere_are_refused(model: Path, name: str) -> None:
    with pytest.raises(ProgramError, match="has weights in"):
        load_job(model).with_data([name])


def _needs(**lacks: tuple[str, ...]) -> ProgramNeeds:
    nodes = (Node(name="a", operator="Conv", provider="XnnpackExecutionProvider"),
             Node(name="b", operator="Add", provider="CPUExecutionProvider", why="no Add"))  # fmt: skip
    method = Method(name="forward", operators=("Add", "Conv"), nodes=nodes, **lacks)
    return ProgramNeeds(methods=(method,), program=ProgramFacts(opsets={"ai.onnx": 20, "com.microsoft": 1}))


def test_the_preflight_names_operator_sets_providers_and_unknown_operators() -> None:
    offered = bundle(engine="onnxruntime", backends=(), operators=())
    found = check(offered, FACTS, _needs(), "forward", upload_bytes=1, program_bytes=1)
    rows = {row.check: (row.needs, row.has) for row in found}
    assert rows["operator sets"] == ("ai.onnx 20, com.microsoft 1", "known")
    assert rows["providers"] == ("2 nodes", "1 on Xnnpack, 1 on CPU")
    assert failure(found, PI, offered) is None
    offered = bundle(engine="onnxruntime", backends=(), operators=())
    needs = _needs(missing_operators=("Frobnicate",))
    assert lacking(needs, "forward") == ("Frobnicate",)
    error = failure(check(offered, FACTS, needs, "forward", upload_bytes=1, program_bytes=1), PI, offered)
    assert isinstance(error, MissingOperatorError)
    assert error.names == ("Frobnicate",)
    assert "older operator set" in error.hint
