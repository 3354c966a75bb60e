"""Reference outputs of a user's own .onnx: what it cannot be run with is said, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.environment import ensure_onnx
from core.errors import ExportError, ProgramError


@pytest.fixture(scope="module", autouse=True)
def _packages() -> Iterator[None]:
    ensure_onnx()
    yield


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


def value(kind: str) -> Any:
    """An input that is no tensor."""
    from onnx import TensorProto, helper

    numbers = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    made = {
        "sequence": helper.make_sequence_type_proto(numbers),
        "map": helper.make_map_type_proto(TensorProto.INT64, numbers),
        "optional value": helper.make_optional_type_proto(numbers),
    }
    return helper.make_value_info("x", made[kind])


@pytest.mark.parametrize(
    "element",
    ["FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"],
)
def test_every_type_of_numbers_runs(tmp_path: Path, element: str) -> None:
    from models.onnx import hostrun

    (output,) = hostrun._run(request(tmp_path, tensor(element, 2)))["outputs"]
    assert output["dtype"] == hostrun._NUMBERS[element.lower()]


@pytest.mark.parametrize(
    ("element", "said", "fix"),
    [
        ("STRING", "is text", "tokenize outside"),
        ("BFLOAT16", "is of bfloat16", "--expected"),
        ("FLOAT8E4M3FN", "is a tensor of float8e4m3fn", "tensors of numbers"),
    ],
)
def test_other_elements_are_named(tmp_path: Path, element: str, said: str, fix: str) -> None:
    from models.onnx import hostrun

    with pytest.raises(hostrun.Refused, match=f"^Input x {said}") as caught:
        hostrun._run(request(tmp_path, tensor(element, 2)))
    assert fix in caught.value.fix
    assert caught.value.names == ["x"]


def test_sizes_that_are_open_are_named(tmp_path: Path) -> None:
    from models.onnx import hostrun

    model = tensor("FLOAT", "batch size", 3, "h", None)
    with pytest.raises(hostrun.Refused, match=r"^sizes of x are not fixed, and were taken as 1") as caught:
        hostrun._run(request(tmp_path, model, conv=True))
    assert caught.value.fix == "--input-shapes 1x3xhxsize3, with numbers for h, size3; or --inputs with .npy files"
    (output,) = hostrun._run(request(tmp_path, model, "1x3x8x8", conv=True))["outputs"]
    assert output["shape"] == (1, 4, 6, 6)
    (output,) = hostrun._run(request(tmp_path, tensor("FLOAT", "n", 3, 8, 8), conv=True))["outputs"]
    assert output["shape"] == (1, 4, 6, 6)
    # What fails with given sizes, or with fixed ones, has another reason.
    for value, shapes in ((model, "1x3x1x1"), (tensor("FLOAT", 1, 2, 8, 8), "")):
        with pytest.raises(Exception, match="Conv") as other:
            hostrun._run(request(tmp_path, value, shapes, conv=True))
        assert not isinstance(other.value, hostrun.Refused)


@pytest.mark.parametrize(("operator", "quantized"), [("QuantizeLinear", True), ("DynamicQuantizeLinear", False)])
def test_a_model_in_onnx_runtimes_own_format_runs(tmp_path: Path, operator: str, quantized: bool) -> None:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    from models.onnx import hostrun

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
        assert hostrun._run(asked)["quantized"] is quantized


@pytest.mark.parametrize("names", [(), ("x",)])
def test_the_advice_of_the_other_end_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    from models.onnx import host

    class Answers:
        def request(self, _request: object) -> Any:
            raise ExportError("It does not run.", "Input x is text", "tokenize outside", names)

    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "one.onnx").write_bytes(b"")
    with pytest.raises(ProgramError, match="does not run on this machine") as caught:
        host.run(tmp_path / "one.onnx", host=Answers())  # type: ignore[arg-type]
    assert caught.value.hint.startswith("tokenize outside" if names else "check the file with onnx.checker")
