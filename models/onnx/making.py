"""From a torch model to an ``.onnx`` with references and description. Imports torch and onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import onnx
import torch
from onnx import numpy_helper

from core.errors import ExportError
from core.files import sha256_file
from core.formats.program import Dimension, Program, Quantization, Tolerance
from models.loading import Prepared, load, reference
from models.lowering import graphs, shortcuts
from models.lowering.quantize import explained
from models.onnx.host import as_moved, engine, save
from models.reference import tolerances
from models.request import Request, key, versions
from models.samples import taking

if TYPE_CHECKING:
    from models.lowering.progress import Stages
    from models.reference.host import Host

OPSET = 20
"""What torch 2.13's exporter writes by itself; ONNX Runtime 1.21, the oldest that runs it here, reads up to 22."""
LARGEST = 2**31 - 1
"""Bytes in which Protocol Buffers hold a message: beyond, weights need files of their own."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_DEEP, _STEPS = 8, 8
# From so many quantized layers on, the output may be off by so many of its steps. Seen between the CPU and the XNNPACK
# provider on MobileNetV2's 53 layers: none in a third of the outputs, at most 4 in one of a thousand.


@dataclass(frozen=True)
class _Exported:
    model: Any
    """``onnx.ModelProto``."""
    sizes: tuple[tuple[Dimension, ...], ...] = ()


def _to_onnx(model: Prepared) -> _Exported:
    """torch's exporter, the one on ``torch.export``; its own constant folding included."""

    def run() -> Any:
        program = torch.onnx.export(
            model.module, model.inputs, dynamo=True, opset_version=OPSET, dynamic_shapes=model.dynamic_shapes,
            verbose=False,
        )  # fmt: skip
        return _Exported(
            program.model_proto, sizes=graphs.input_sizes(program.exported_program) if program.exported_program else ()
        )

    exported: _Exported = explained(
        "torch's export to ONNX",
        "./inv export without --format onnx shows whether it exports at all",
        run,
        model.module,
    )
    return exported


def add_zero_biases(model: Any) -> int:
    """Give every Gemm without C one of zeros: the XNNPACK provider of 1.21 crashes on a Gemm that has none.

    torch's exporter takes biases away which are all zeros. Returns how many it were.
    """
    weights = {one.name: one for one in model.graph.initializer}
    count = 0
    for node in model.graph.node:
        if node.op_type != "Gemm" or (len(node.input) > 2 and node.input[2]) or node.input[1] not in weights:
            continue
        weight = weights[node.input[1]]
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        zeros = numpy.zeros(weight.dims[0 if transposed else 1], onnx.helper.tensor_dtype_to_np_dtype(weight.data_type))
        name = f"{node.name or node.output[0]}_zero_bias"
        model.graph.initializer.append(numpy_helper.from_array(zeros, name))
        del node.input[2:]
        node.input.append(name)
        count += 1
    return count


class _Samples:
    """Calibration data as ONNX Runtime's quantizer reads it."""

    def __init__(self, names: Sequence[str], samples: Sequence[tuple[Any, ...]]) -> None:
        self._left = iter(
            [{name: reference.to_numpy(one) for name, one in zip(names, sample, strict=True)} for sample in samples]
        )

    def get_next(self) -> dict[str, Any] | None:
        """The next sample."""
        return next(self._left, None)


def _quantize(model: Any, prepared: Prepared, folder: Path) -> _Exported:
    """Static int8: one scale a tensor of activations, one a channel of weights, as QuantizeLinear/DequantizeLinear."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    reader = type("Samples", (_Samples, CalibrationDataReader), {})
    names = [one.name for one in model.graph.input]
    plain, result = folder / "float.onnx", folder / "quantized.onnx"

    def run() -> Any:
        onnx.save(model, plain)
        quant_pre_process(plain, plain, skip_symbolic_shape=True)
        quantize_static(
            plain,
            result,
            reader(names, prepared.calibration or (prepared.inputs,)),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        return onnx.load(result)

    try:
        quantized = explained("Static quantization", "./inv export --format onnx --scheme fp32", run)
    finally:
        plain.unlink(missing_ok=True)
        result.unlink(missing_ok=True)
    return _Exported(quantized)


def output_steps(model: Any) -> list[float | None]:
    """For each output: the step in which it is quantized, ``None`` when it is not."""
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {one.name: one for one in model.graph.initializer}
    steps: list[float | None] = []
    for output in model.graph.output:
        node = makers.get(output.name)
        scale = constants.get(node.input[1]) if node is not None and node.op_type == "DequantizeLinear" else None
        steps.append(float(numpy_helper.to_array(scale)) if scale is not None else None)
    return steps


def _not_quantized(model: Any) -> tuple[str, ...]:
    """Convolutions and products with constant weights that quantization left in float."""
    constants = {one.name for one in model.graph.initializer}
    return tuple(
        f"{node.name} ({node.op_type}): the quantizer left it in float"
        for node in model.graph.node
        if node.op_type in _LAYERS and node.input[1] in constants
    )


def _only_used_opsets(model: Any) -> None:
    """Remove unused operator sets: ONNX Runtime's quantizer lists all that it knows."""
    used = {node.domain or "" for node in model.graph.node} | {""}
    kept = [one for one in model.opset_import if one.domain in used or one.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _write(model: Any, file: Path) -> None:
    _only_used_opsets(model)
    if model.ByteSize() > LARGEST:
        raise ExportError(
            f"The model has {model.ByteSize():,} bytes, more than an .onnx file holds.",
            "beyond 2 GB weights need a file of their own, which Slipway does not write",
            "a smaller model, or --scheme qs8",
        )
    explained("ONNX's own check of the export", "", lambda: onnx.checker.check_model(model, full_check=True))
    onnx.save(model, file)


def _tolerances(
    model: Any, request: Request, outputs: Sequence[Any], moves: Sequence[Mapping[str, float]]
) -> tuple[Tolerance, ...]:
    if request.scheme.name != "qs8":
        return tolerances.of_outputs(request.scheme, outputs, [])
    layers = sum(node.op_type in _LAYERS for node in model.graph.node)
    plain = tolerances.of_outputs(request.scheme, outputs, output_steps(model))
    if layers < _DEEP:
        return plain
    why = f"{_STEPS} times {{}}: providers round integers differently, and {layers} layers follow each other"
    deep = [Tolerance(atol=one.atol * _STEPS, rtol=one.rtol, why=why.format(one.why)) for one in plain]
    return as_moved(deep, moves)


def make(request: Request, folder: Path, stages: Stages, host: Host) -> Program:
    """Export into ``folder``: ``model.onnx``, ``inputN.npy``, ``outputN.npy``; the description is returned.

    Raises:
        ExportError: the exporter, the quantizer, ONNX's checker or ONNX Runtime cannot take the model.
    """
    torch.manual_seed(0)
    stages.show("making the model")
    loaded = load(request)
    with loaded.entered():
        sampled = taking.take(request, loaded)
        prepared = sampled.model
        # ONNX has no None.
        want = [one for one in reference.eager(prepared.module, prepared.inputs) if one is not None]
        stages.show("exporting")
        with shortcuts.in_torch():
            made = _to_onnx(prepared)
    sizes = made.sizes
    add_zero_biases(made.model)
    if request.scheme.name == "qs8":
        stages.show("quantizing")
        made = _quantize(made.model, prepared, folder)
    _write(made.model, folder / request.file)

    stages.show("running the reference")
    inputs = tuple(save(folder, f"input{at}", reference.to_numpy(one)) for at, one in enumerate(prepared.inputs))
    files = [str(folder / one.file) for one in inputs]
    answer = host.request({"folder": str(folder), "file": str(folder / request.file), "inputs": files, "moves": True})
    outputs = [reference.load(folder, file) for file in host.files(answer, "outputs")]
    agreement = tolerances.agreement(request.scheme, want, outputs)
    left = _not_quantized(made.model) if request.scheme.name == "qs8" else ()
    warnings = [*sampled.warnings, *(f"not quantized: {layer}" for layer in left)]
    if agreement.max_abs > agreement.limit:
        warnings.append(
            f"the program is {agreement.max_abs:.4g} away from the model, more than {agreement.limit:.4g}: "
            f"{agreement.why}"
        )
    if any(bool((~torch.isfinite(one.double())).any()) for one in outputs):
        warnings.append("an output holds infinities or NaN")
    per_output = _tolerances(made.model, request, outputs, answer["moves"])
    return Program(
        name=request.name,
        format="onnx",
        model=request.model,
        scheme=request.scheme.name,
        file=request.file,
        size=(folder / request.file).stat().st_size,
        sha256=sha256_file(folder / request.file),
        inputs=inputs,
        sizes=sizes,
        outputs=tuple(host.files(answer, "outputs")),
        reference_engine=engine(answer["version"]),
        tolerance=tolerances.widest(per_output),
        tolerances=per_output,
        delegates=0,
        opsets={one.domain or "ai.onnx": one.version for one in made.model.opset_import},
        delegated=(),
        undelegated=(),
        quantization=Quantization(scheme=request.scheme.name, skipped=left),
        options=request.options.to_json(),
        agreement=agreement,
        classes=taking.classes(request, sampled, want[0] if want else None, folder),
        warnings=tuple(warnings),
        export_key=key(request),
        versions=versions(request.format),
        seconds=round(stages.seconds, 2),
        files={path.name: path.stat().st_size for path in sorted(folder.iterdir())},
        depends=prepared.depends,
    )
