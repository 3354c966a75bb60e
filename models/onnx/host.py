"""Reference outputs of an ``.onnx`` file, by PyPI's ONNX Runtime on this machine. No torch.

The runtime is in a process of its own, ``python -m models.onnx.host``: a damaged file may crash it. `run` asks it for a
file of the user's own, `models.onnx.making` for an export.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ExportError, ProgramError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.formats.program import TensorFile, Tolerance
from core.paths import cache_dir
from models.lowering.progress import log_path
from models.reference.host import Host, serve
from models.request import versions

_ANSWER = "reference.json"
_STEPS = 8
"""Steps of 8 bits by which a quantized model's output may be off: see `models.onnx.making`."""


@dataclass(frozen=True)
class Reference:
    """What the host computed."""

    outputs: tuple[Path, ...]
    tolerances: tuple[Tolerance, ...]
    engine: str


def engine(version: str) -> str:
    """What computed the outputs, for reports."""
    return f"onnxruntime {version} (CPU provider, 1 thread, {platform.machine()})"


def _key(file: Path, inputs: Sequence[Path], shapes: str) -> str:
    """Digest of everything the outputs depend on; data files beside the model count by their size and time."""
    beside = [
        (one.name, one.stat().st_size, one.stat().st_mtime_ns)
        for one in sorted(file.parent.glob(f"{file.stem}*"))
        if one.is_file() and one != file
    ]
    parts = [sha256_file(file), [sha256_file(one) for one in inputs], shapes, versions("onnx"), beside, "moves"]
    return sha256_bytes(json.dumps(parts).encode())[:32]


def run(file: Path, *, inputs: Sequence[Path] = (), shapes: str = "") -> Reference:
    """Run ``file`` on this machine; the same again is answered from the cache.

    Args:
        inputs: ``.npy`` files; without them the inputs are ones, as the runner on the device makes them.
        shapes: of those ones, ``1x3x224x224,1x8``; without them the declared ones, where what is not fixed is 1.

    Raises:
        ProgramError: ONNX Runtime refuses the file or fails on it.
        HostError: the runtime is missing, or the disk is full.
    """
    key = _key(file, inputs, shapes)
    folder = cache_dir("references") / key
    with locked(f"reference-{key}"):
        try:
            answer = json.loads((folder / _ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            answer = _compute(file, folder, inputs, shapes)
    files = [TensorFile.model_validate(one) for one in answer["outputs"]]
    near = [_tolerance(folder / one.file, one, quantized=answer["quantized"]) for one in files]
    return Reference(
        tuple(folder / one.file for one in files), as_moved(near, answer["moves"]), engine(answer["version"])
    )


def _compute(file: Path, folder: Path, inputs: Sequence[Path], shapes: str) -> dict[str, Any]:
    with new_folder(folder) as made:
        request = {
            "folder": str(made),
            "file": str(file.absolute()),
            "inputs": [str(one.absolute()) for one in inputs],
            "shapes": shapes,
            "fill": not inputs,
            "moves": True,
        }
        try:
            with Host(log_path("host"), "onnx") as host:
                answer = host.request(request)
        except ExportError as error:
            raise ProgramError(
                f"{file} does not run on this machine's ONNX Runtime.",
                error.cause,
                error.hint
                if error.names
                else "check the file with onnx.checker; or --inputs and --expected of your own",
                error.names,
            ) from error
        write_json(made / _ANSWER, answer)
    return answer


def as_moved(plain: Sequence[Tolerance], moves: Sequence[Mapping[str, float]]) -> tuple[Tolerance, ...]:
    """Wider tolerances of those outputs that flipped roundings move farther (`_moves`).

    Twice as far is allowed, since a few runs do not find the worst case; then the root mean square is limited, too.
    """
    return tuple(
        one
        if 2 * move["largest"] <= one.atol
        else Tolerance(
            atol=2 * move["largest"], rtol=one.rtol, rms=2 * move["rms"],
            why="quantized: inputs that moved by a ten-thousandth, which rounds integers otherwise as another provider "
            f"does, moved the output by {move['largest']:.3g}, and twice that is allowed",
        )
        for one, move in zip(plain, moves or [{"largest": 0.0, "rms": 0.0}] * len(plain), strict=True)
    )  # fmt: skip


def _tolerance(file: Path, tensor: TensorFile, *, quantized: bool) -> Tolerance:
    """How close the device must be; as for programs of the zoo, from the dtype and the output's spread."""
    import numpy

    array = numpy.load(file, allow_pickle=False)
    if array.dtype.kind != "f":
        if quantized and array.dtype.itemsize == 1:
            return Tolerance(atol=_STEPS, rtol=0, why=f"quantized: {_STEPS} steps, providers round differently")
        return Tolerance(atol=0, rtol=0, why="whole numbers must be the same")
    numbers = array[numpy.isfinite(array)].astype(numpy.float64)
    reach = float(max(numbers.max() - numbers.min(), numpy.abs(numbers).max())) if numbers.size else 0.0
    if quantized:
        return Tolerance(
            atol=reach * _STEPS / 256, rtol=0, why=f"quantized: {_STEPS} of 256 steps over its spread ({reach:.4g})"
        )
    if tensor.dtype == "float16":
        return Tolerance(atol=reach * 2**-7, rtol=0, why=f"16-bit float: 2^-7 of its spread ({reach:.4g})")
    if tensor.dtype == "float64":
        return Tolerance(atol=max(1e-9, 1e-14 * reach), rtol=1e-9, why="fp64: the order of additions differs")
    return Tolerance(atol=max(1e-5, 2e-6 * reach), rtol=1e-5, why="fp32: the order of additions differs between CPUs")


_LEVEL_ERROR = 3
_RUNS = 3
"""With inputs that moved."""


_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS = {"float": "float32", "double": "float64", **{name: name for name in ("bool", "float16", *_WHOLE)}}
"""NumPy's names of the element types that a deploy gives a model, by ONNX Runtime's."""
_KINDS = {"seq": "a sequence", "map": "a map", "optional": "an optional value", "sparse_tensor": "a sparse tensor"}


class Refused(ValueError):  # noqa: N818  # of a request, no defect
    """The model cannot be run so, and it is known what to do; ``names``: the inputs or outputs that it is about."""

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
    return any(node.op_type.startswith(operators) for node in onnx.load(file, load_external_data=False).graph.node)


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
