"""The other end of `models.reference.host` for ``.onnx``: runs programs on PyPI's ONNX Runtime, one request a line.

A program of its own (``python -m models.onnx.hostrun``) because a damaged file may crash the runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.files import sha256_bytes
from core.formats.program import TensorFile
from models.reference.hostrun import serve

_LEVEL_ERROR = 3
_RUNS = 3
"""With inputs that moved."""


_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS = {"float": "float32", "double": "float64", **{name: name for name in ("bool", "float16", *_WHOLE)}}
"""NumPy's names of the element types that a deploy gives a model, by ONNX Runtime's."""
_KINDS = {"seq": "a sequence", "map": "a map", "optional": "an optional value", "sparse_tensor": "a sparse tensor"}


class Refused(ValueError):  # noqa: N818  # of a request, no defect
    """The model cannot be run so, and it is known what to do.

    Args:
        names: the inputs or outputs that it is about.
    """

    def __init__(self, why: str, fix: str, names: list[str]) -> None:
        super().__init__(why)
        self.fix, self.names = fix, names


def _check(doing: str, value: Any) -> None:
    """Refuse an input or output that is not a tensor of numbers.

    Raises:
        Refused: says what it is.
    """
    kind, _, element = value.type.removesuffix(")").partition("(")
    if kind == "tensor" and element in _NUMBERS:
        return
    if value.type == "tensor(bfloat16)":
        raise Refused(
            f"{doing} {value.name} is of bfloat16, which Python cannot give to ONNX Runtime",
            "--inputs and --expected with .npy files of your own (two-byte void: V2)",
            [value.name],
        )
    if value.type == "tensor(string)":
        what, fix = "text", "tokenize outside of the model, and export the part that takes numbers"
    else:
        what = _KINDS.get(kind, f"a tensor of {element}")
        fix = "export it with tensors of numbers instead (for sequences of maps of scikit-learn: without ZipMap)"
    raise Refused(f"{doing} {value.name} is {what}: a deploy takes and gives tensors of numbers", fix, [value.name])


def _fill(inputs: Any, shapes: str) -> list[Any]:
    """Ones for every input, as the runner on the device makes them: a dimension that is not fixed is 1."""
    import numpy

    given = [part for part in shapes.split(",") if part]
    if given and len(given) != len(inputs):
        raise ValueError(f"the model has {len(inputs)} inputs, {len(given)} shapes were given")
    made = []
    for index, one in enumerate(inputs):
        declared = [size if isinstance(size, int) else 1 for size in one.shape]
        shape = [int(size) for size in given[index].split("x") if size != "scalar"] if given else declared
        made.append(numpy.ones(shape, _NUMBERS[one.type.removeprefix("tensor(").removesuffix(")")]))
    return made


def _open(inputs: Any, error: Exception) -> Refused | None:
    """What to do where ones of the declared shapes do not run, if sizes in these are not fixed."""
    texts, names, sizes = [], [], []
    for one in inputs:
        open_sizes = [place for place, size in enumerate(one.shape) if not isinstance(size, int)]
        words = [str(size) for size in one.shape]
        for place in open_sizes:
            # The first is how many at once; of the others the model's author knows.
            words[place] = "1" if place == 0 else str(one.shape[place] or f"size{place}").replace(" ", "_")
        texts.append("x".join(words) or "scalar")
        names += [one.name] if open_sizes else []
        sizes += [words[place] for place in open_sizes if place]
    if not names:
        return None
    numbers = f", with numbers for {', '.join(dict.fromkeys(sizes))}" if sizes else ""
    return Refused(
        f"sizes of {', '.join(names)} are not fixed, and were taken as 1: {error}",
        f"--inputs {','.join(texts)}{numbers}; or .npy files",
        names,
    )


def save(folder: Path, name: str, array: Any) -> TensorFile:
    """Write ``<name>.npy`` (format 1.0, row-major, little-endian) and describe it."""
    import numpy

    plain = numpy.asarray(array, order="C")
    plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    numpy.save(folder / f"{name}.npy", plain, allow_pickle=False)
    return TensorFile(
        file=f"{name}.npy",
        dtype=plain.dtype.name,
        shape=tuple(int(size) for size in plain.shape),
        sha256=sha256_bytes(plain.tobytes()),
    )


def _quantized(file: str) -> bool:
    """Whether the model computes with quantized integers."""
    import onnx

    operators = ("QuantizeLinear", "QLinear", "QGemm")
    if (data := Path(file).read_bytes())[4:8] == b"ORTM":
        # ONNX Runtime's own format, a FlatBuffer: a text follows its length.
        return any(b"\0" + name.encode() in data for name in operators)
    model = onnx.load(file, load_external_data=False)
    return any(node.op_type.startswith(operators) for node in model.graph.node)


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


def _moves(run: Callable[[list[Any]], list[Any]], arrays: list[Any], values: list[Any]) -> list[dict[str, float]]:
    """How far each output moves when the inputs do by a ten-thousandth of their largest number.

    Then some integers are rounded otherwise, as by another provider, and later layers carry that on. The largest
    difference of an element and the largest root mean square of `_RUNS` runs; 0 for whole numbers and their programs.
    """
    import numpy

    found = [{"largest": 0.0, "rms": 0.0} for _ in values]
    for seed in range(_RUNS):
        random = numpy.random.default_rng(seed)
        near = [
            (one + 1e-4 * numpy.abs(one).max(initial=0) * random.standard_normal(one.shape)).astype(one.dtype)
            if one.dtype.kind == "f"
            else one
            for one in arrays
        ]
        for moves, one, other in zip(found, run(near), values, strict=True):
            if other.dtype.kind == "f" and other.size:
                far = numpy.nan_to_num(one.astype(numpy.float64) - other, nan=0, posinf=0, neginf=0)
                moves["largest"] = max(moves["largest"], float(numpy.abs(far).max()))
                moves["rms"] = max(moves["rms"], float(numpy.sqrt((far**2).mean())))
    return found


def _run(request: dict[str, Any]) -> dict[str, Any]:
    import numpy
    import onnxruntime

    folder = Path(request["folder"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LEVEL_ERROR
    options.intra_op_num_threads = 1  # the same sums in the same order on every machine of a kind
    session = _session(onnxruntime, request["file"], options)
    inputs, filled = session.get_inputs(), bool(request.get("fill"))
    for doing, values in (("Input", inputs), ("Output", session.get_outputs())):
        for one in values:
            _check(doing, one)
    if filled:
        arrays = _fill(inputs, request["shapes"])
    else:
        arrays = [numpy.load(one, allow_pickle=False) for one in request["inputs"]]
    names = [one.name for one in inputs]
    if len(arrays) != len(names):
        raise ValueError(f"the model has {len(names)} inputs, {len(arrays)} were given")

    def run(given: list[Any]) -> list[Any]:
        found: list[Any] = session.run(None, dict(zip(names, given, strict=True)))
        return found

    try:
        values = run(arrays)
    except Exception as error:
        if filled and not request["shapes"] and (refused := _open(inputs, error)):
            raise refused from error
        raise
    outputs = [save(folder, f"output{index}", one) for index, one in enumerate(values)]
    quantized = _quantized(request["file"])
    return {
        "quantized": quantized,
        "moves": _moves(run, arrays, values) if quantized and request.get("moves") else [],
        "outputs": [one.model_dump() for one in outputs],
        "version": onnxruntime.__version__,
    }


def _explained(error: Exception, _request: dict[str, Any], _begin: int) -> dict[str, Any]:
    if isinstance(error, Refused):
        return {"error": str(error), "fix": error.fix, "names": error.names}
    return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    serve(sys.stdin, _run, _explained)
