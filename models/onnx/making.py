"""From a torch model to an ``.onnx`` with references and description. Imports torch and onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import onnx
import torch
from onnx import numpy_helper

from core.errors import ExportError
from core.formats.program import Dimension, Quantization, TensorFile, Tolerance
from models.loading import Prepared, reference
from models.lowering import graphs, shortcuts
from models.lowering.quantize import explained
from models.onnx.host import as_moved, engine, save
from models.reference import tolerances
from models.request import Request
from models.samples import taking

if TYPE_CHECKING:
    from models.lowering.progress import Stages
    from models.reference.host import Host
    from models.samples.taking import Taken

OPSET = 20
"""What torch 2.13's exporter writes by itself; ONNX Runtime 1.21, the oldest that runs it here, reads up to 22."""
LARGEST = 2**31 - 1
"""Bytes in which Protocol Buffers hold a message: beyond, weights need files of their own."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_DEEP, _STEPS = 8, 8
# From so many quantized layers on, the output may be off by so many of its steps. Seen between the CPU and the XNNPACK
# provider on MobileNetV2's 53 layers: none in a third of the outputs, at most 4 in one of a thousand.


def _to_onnx(model: Prepared) -> tuple[Any, tuple[tuple[Dimension, ...], ...]]:
    """``onnx.ModelProto`` by torch's exporter, the one on ``torch.export``, and the sizes of its inputs."""

    def run() -> Any:
        return torch.onnx.export(
            model.module, model.inputs, dynamo=True, opset_version=OPSET, dynamic_shapes=model.dynamic_shapes,
            verbose=False,
        )  # fmt: skip

    hint = "./inv export without --format onnx shows whether it exports at all"
    program = explained("torch's export to ONNX", hint, run, model.module)
    return program.model_proto, graphs.input_sizes(program.exported_program) if program.exported_program else ()


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


def _quantize(model: Any, prepared: Prepared, folder: Path) -> Any:
    """Static int8: one scale a tensor of activations, one a channel of weights, as QuantizeLinear/DequantizeLinear."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = [one.name for one in model.graph.input]
    left = (
        {name: reference.to_numpy(one) for name, one in zip(names, sample, strict=True)}
        for sample in prepared.calibration or (prepared.inputs,)
    )

    class Samples(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime's types are not read here
        def get_next(self) -> dict[str, Any] | None:
            return next(left, None)

    plain, result = folder / "float.onnx", folder / "quantized.onnx"

    def run() -> Any:
        onnx.save(model, plain)
        quant_pre_process(plain, plain, skip_symbolic_shape=True)
        quantize_static(
            plain,
            result,
            Samples(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        return onnx.load(result)

    try:
        return explained("Static quantization", "./inv export --format onnx --scheme fp32", run)
    finally:
        plain.unlink(missing_ok=True)
        result.unlink(missing_ok=True)


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


def _write(model: Any, file: Path) -> None:
    # Without unused operator sets: ONNX Runtime's quantizer lists all that it knows.
    used = {node.domain for node in model.graph.node} | {"", "ai.onnx"}
    kept = [one for one in model.opset_import if one.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
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


def make(request: Request, taken: Taken, folder: Path, stages: Stages, host: Host) -> dict[str, Any]:
    """From the module to the ``.onnx`` with its references; what only this knows of the description.

    Raises:
        ExportError: the exporter, the quantizer, ONNX's checker or ONNX Runtime cannot take the model.
    """
    prepared = taken.model
    # ONNX has no None.
    want = [one for one in reference.eager(prepared.module, prepared.inputs) if one is not None]
    stages.show("exporting")
    with shortcuts.in_torch():
        model, sizes = _to_onnx(prepared)
    add_zero_biases(model)
    quantizes = request.scheme.name == "qs8"
    if quantizes:
        stages.show("quantizing")
        model = _quantize(model, prepared, folder)
    _write(model, folder / request.file)

    stages.show("running the reference")
    inputs = tuple(save(folder, f"input{at}", reference.to_numpy(one)) for at, one in enumerate(prepared.inputs))
    files = [str(folder / one.file) for one in inputs]
    answer = host.request({"folder": str(folder), "file": str(folder / request.file), "inputs": files, "moves": True})
    described = [TensorFile.model_validate(one) for one in answer["outputs"]]
    outputs = [reference.load(folder, file) for file in described]
    agreement = tolerances.agreement(request.scheme, want, outputs)
    left = _not_quantized(model) if quantizes else ()
    per_output = _tolerances(model, request, outputs, answer["moves"])
    return {
        "inputs": inputs,
        "sizes": sizes,
        "outputs": tuple(described),
        "reference_engine": engine(answer["version"]),
        "tolerance": tolerances.widest(per_output),
        "tolerances": per_output,
        "delegates": 0,
        "opsets": {one.domain or "ai.onnx": one.version for one in model.opset_import},
        "delegated": (),
        "undelegated": (),
        "quantization": Quantization(scheme=request.scheme.name, skipped=left),
        "agreement": agreement,
        "classes": taking.classes(request, taken, want[0] if want else None, folder),
        "warnings": [*(f"not quantized: {layer}" for layer in left), *tolerances.doubts(agreement, outputs)],
    }
