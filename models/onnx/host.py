"""Reference outputs of an ``.onnx`` file of the user's own, by PyPI's ONNX Runtime on this machine. No torch."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ExportError, ProgramError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.formats.program import TensorFile, Tolerance
from core.paths import cache_dir
from models.lowering.progress import log_path
from models.reference.host import Host
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


def run(file: Path, *, inputs: Sequence[Path] = (), shapes: str = "", host: Host | None = None) -> Reference:
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
            answer = _compute(file, folder, inputs, shapes, host)
    files = [TensorFile.model_validate(one) for one in answer["outputs"]]
    near = [_tolerance(folder / one.file, one, quantized=answer["quantized"]) for one in files]
    return Reference(
        tuple(folder / one.file for one in files),
        as_moved(near, answer["moves"]),
        engine(answer["version"]),
    )


def _compute(file: Path, folder: Path, inputs: Sequence[Path], shapes: str, host: Host | None) -> dict[str, Any]:
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
            if host is not None:
                answer = host.request(request)
            else:
                with Host(log_path("host"), "onnx") as own:
                    answer = own.request(request)
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
    """Wider tolerances of those outputs that flipped roundings move farther (`models.onnx.hostrun`).

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
