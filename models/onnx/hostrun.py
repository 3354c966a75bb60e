"""The other end of `models.host` for ``.onnx``: runs programs on PyPI's ONNX Runtime, CPU provider, one request a line.

A program of its own (``python -m models.onnx.hostrun``) because a damaged file may crash the runtime.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_LEVEL_ERROR = 3


def _fill(session: Any, shapes: str) -> list[Any]:
    """Ones for every input, as the runner on the device makes them: a dimension that is not fixed is 1."""
    import numpy

    given = [part for part in shapes.split(",") if part]
    inputs = session.get_inputs()
    if given and len(given) != len(inputs):
        raise ValueError(f"the model has {len(inputs)} inputs, {len(given)} shapes were given")
    made = []
    for index, one in enumerate(inputs):
        declared = [size if isinstance(size, int) else 1 for size in one.shape]
        shape = [int(size) for size in given[index].split("x") if size != "scalar"] if given else declared
        name = one.type.removeprefix("tensor(").removesuffix(")")
        made.append(numpy.ones(shape, {"float": "float32", "double": "float64"}.get(name, name)))
    return made


def _quantized(file: str) -> bool:
    """Whether the model computes with quantized integers."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    return any(node.op_type.startswith(("QuantizeLinear", "QLinear", "QGemm")) for node in model.graph.node)


def _session(onnxruntime: Any, file: str, options: Any) -> Any:
    """With sums of 8-bit products in 32 bits, as in the runner.

    On x86 processors that lack VNNI pairs of products stick at the ends of 16 bits otherwise, without a word:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    There QLinearConv and QLinearMatMul of int8 alone have no kernel for it, and need none; then what lies between
    DequantizeLinear and QuantizeLinear is computed in float32.
    """
    providers = ["CPUExecutionProvider"]
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(file, options, providers=providers)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        options.add_session_config_entry("session.x64quantprecision", "0")
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        return onnxruntime.InferenceSession(file, options, providers=providers)


def _run(request: dict[str, Any]) -> dict[str, Any]:
    import numpy
    import onnxruntime

    from models.onnx.tensors import save

    folder = Path(request["folder"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LEVEL_ERROR
    options.intra_op_num_threads = 1  # the same sums in the same order on every machine of a kind
    session = _session(onnxruntime, request["file"], options)
    if request.get("fill"):
        arrays = _fill(session, request["shapes"])
    else:
        arrays = [numpy.load(one, allow_pickle=False) for one in request["inputs"]]
    names = [one.name for one in session.get_inputs()]
    if len(arrays) != len(names):
        raise ValueError(f"the model has {len(names)} inputs, {len(arrays)} were given")
    values = session.run(None, dict(zip(names, arrays, strict=True)))
    outputs = [save(folder, f"output{index}", one) for index, one in enumerate(values)]
    return {
        "quantized": _quantized(request["file"]),
        "outputs": [one.model_dump() for one in outputs],
        "version": onnxruntime.__version__,
    }


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        return _run(request)
    except OSError as error:
        return {"errno": error.errno, "error": str(error)}
    except Exception as error:  # noqa: BLE001  # whatever the runtime raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what the runtime prints must not get among the answers
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
