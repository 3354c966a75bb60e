""".onnx files: reference outputs on this machine, and what a deploy says of them before it uploads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.environment import ensure_onnx
from core.errors import ExportError, MissingOperatorError, ProgramError, UsageError
from core.formats.program import Tolerance
from deploy.run.job import check_engine, load_job
from deploy.run.needs import Method, ProgramFacts, ProgramNeeds, lacking
from deploy.run.preflight import check, failure
from deploy.run.settings import engine_flags
from models.onnx import host
from models.onnx.host import as_moved
from models.reference.host import Host
from tests.unit.test_preflight import FACTS, PI, bundle


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    ensure_onnx()


def request(folder: Path, value: Any, shapes: str = "", conv: bool = False) -> dict[str, Any]:
    """A model of one input, which it gives on, or convolves."""
    import onnx
    from onnx import TensorProto, helper

    result = onnx.ValueInfoProto()
    result.CopyFrom(value)
    result.name = "y"
    nodes, weights = [helper.make_node("Identity", ["x"], ["y"])], []
    if conv:
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
        weights = [helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], [0.5] * 108)]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "one", [value], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, folder / "one.onnx")
    return {"folder": str(folder), "file": str(folder / "one.onnx"), "inputs": [], "fill": True, "shapes": shapes}


def tensor(element: str, *shape: Any) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info("x", getattr(TensorProto, element), list(shape))


@pytest.mark.parametrize(
    "element",
    ["FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"],
)
def test_every_type_of_numbers_runs(tmp_path: Path, element: str) -> None:
    (output,) = host._run(request(tmp_path, tensor(element, 2)))["outputs"]
    assert output["dtype"] == host._NUMBERS[element.lower()]


@pytest.mark.parametrize(
    ("element", "said", "fix"),
    [
        ("STRING", "is text", "tokenize outside"),
        ("BFLOAT16", "is of bfloat16", "--expected"),
        ("FLOAT8E4M3FN", "is a tensor of float8e4m3fn", "tensors of numbers"),
    ],
)
def test_other_elements_are_named(tmp_path: Path, element: str, said: str, fix: str) -> None:
    with pytest.raises(host.Refused, match=f"^Input x {said}") as caught:
        host._run(request(tmp_path, tensor(element, 2)))
    assert fix in caught.value.fix
    assert caught.value.names == ["x"]


def test_sizes_that_are_open_are_named(tmp_path: Path) -> None:
    model = tensor("FLOAT", "batch size", 3, "h", None)
    with pytest.raises(host.Refused, match=r"^sizes of x are not fixed, and were taken as 1") as caught:
        host._run(request(tmp_path, model, conv=True))
    assert caught.value.fix == "--inputs 1x3xhxsize3, with numbers for h, size3; or .npy files"
    (output,) = host._run(request(tmp_path, model, "1x3x8x8", conv=True))["outputs"]
    assert output["shape"] == (1, 4, 6, 6)
    (output,) = host._run(request(tmp_path, tensor("FLOAT", "n", 3, 8, 8), conv=True))["outputs"]
    assert output["shape"] == (1, 4, 6, 6)
    # What fails with given sizes, or with fixed ones, has another reason.
    for value, shapes in ((model, "1x3x1x1"), (tensor("FLOAT", 1, 2, 8, 8), "")):
        with pytest.raises(Exception, match="Conv") as other:
            host._run(request(tmp_path, value, shapes, conv=True))
        assert not isinstance(other.value, host.Refused)


@pytest.mark.parametrize(("operator", "quantized"), [("QuantizeLinear", True), ("DynamicQuantizeLinear", False)])
def test_a_model_in_onnx_runtimes_own_format_runs(tmp_path: Path, operator: str, quantized: bool) -> None:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    zero = helper.make_tensor("zero", TensorProto.UINT8, [], [3])
    inputs, others = (["x", "scale", "zero"], []) if quantized else (["x"], ["step", "middle"])
    node = helper.make_node(operator, inputs, ["y", *others])
    result = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([node], "one", [tensor("FLOAT", 4)], [result], [scale, zero] if quantized else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "a.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "a.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(tmp_path / "a.onnx", options, providers=["CPUExecutionProvider"])
    for file in ("a.onnx", "a.ort"):
        asked = {"folder": str(tmp_path), "file": str(tmp_path / file), "inputs": [], "fill": True, "shapes": ""}
        assert host._run(asked)["quantized"] is quantized


@pytest.mark.parametrize("names", [(), ("x",)])
def test_the_advice_of_the_other_end_is_passed_on(
    tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(*_: object) -> None:
        raise ExportError("It does not run.", "Input x is text", "tokenize outside", names)

    monkeypatch.setattr(Host, "request", request)
    (tmp_path / "one.onnx").write_bytes(b"")
    with pytest.raises(ProgramError, match="does not run on this machine") as caught:
        host.run(tmp_path / "one.onnx")
    assert caught.value.hint.startswith("tokenize outside" if names else "check the file with onnx.checker")


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


@pytest.mark.parametrize("name", ["gone.weights", "sub/w.bin", "../w.bin", "/etc/passwd", "model.onnx", ""])
def test_weights_elsewhere_are_refused(model: Path, name: str) -> None:
    with pytest.raises(ProgramError, match="has weights in"):
        load_job(model).with_data([name])


def _needs(**lacks: tuple[str, ...]) -> ProgramNeeds:
    method = Method(name="forward", operators=("Add", "Conv"), **lacks)
    return ProgramNeeds(methods=(method,), program=ProgramFacts(opsets={"ai.onnx": 20, "com.microsoft": 1}))


def test_the_preflight_names_operator_sets_and_unknown_operators() -> None:
    offered = bundle(engine="onnxruntime", backends=(), operators=())
    found = check(offered, FACTS, _needs(), "forward", upload_bytes=1, program_bytes=1)
    rows = {row.check: (row.needs, row.has) for row in found}
    assert rows["operator sets"] == ("ai.onnx 20, com.microsoft 1", "known")
    assert failure(found, PI, offered) is None
    needs = _needs(missing_operators=("Frobnicate",))
    assert lacking(needs, "forward") == ("Frobnicate",)
    error = failure(check(offered, FACTS, needs, "forward", upload_bytes=1, program_bytes=1), PI, offered)
    assert isinstance(error, MissingOperatorError)
    assert error.names == ("Frobnicate",)
    assert "older operator set" in error.hint


def test_room_is_given_to_outputs_that_flipped_roundings_move_far_and_to_no_other() -> None:
    """MobileNetV2 in 8 bits with trained weights: XNNPACK's provider and the CPU's are both right, and 1.24 apart."""
    x = np.linspace(-3, 3, 1000, dtype=np.float32)

    def run(given: list[Any]) -> list[Any]:
        steps = np.round(given[0] * 100)
        return [steps, np.abs(given[0] * 0), steps.astype(np.int8)]

    moves = host._moves(run, [x], run([x]))
    assert moves[0]["largest"] == 1
    assert 0 < moves[0]["rms"] < 0.5
    assert moves[1] == moves[2] == {"largest": 0.0, "rms": 0.0}
    narrow, wide = Tolerance(atol=0.5, rtol=0, why="narrow"), Tolerance(atol=2, rtol=0, why="wide")
    first, second, third = as_moved([narrow, wide, narrow], [moves[0], moves[0], moves[1]])
    assert (first.atol, first.rms) == (2, 2 * moves[0]["rms"]), "a wrong layer moves more than a few elements"
    assert second == wide
    assert third == narrow
    assert as_moved([narrow], []) == (narrow,), "a program in floating point"
