"""Convert nets for other runtimes, each by its own tools: ``python -m verify.bench.converting``, one request a line.

Imports torch and the packages. A conversion to 8 bits begins with what the one in fp32 left.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.errors import ExportError
from verify.bench.making import make, prepare_packages
from verify.bench.nets import load
from verify.bench.peers import WORK
from verify.programs import serve


@dataclass(frozen=True)
class Job:
    """What is converted, and where to."""

    net: Any
    inputs: tuple[Any, ...]
    samples: list[tuple[Any, ...]]
    """To calibrate with."""
    folder: Path
    floats: Path
    """Of the conversion in fp32."""
    dynamic: bool
    """8 bits: activations are quantized at run time, as nets of linear layers want it."""


def _onnxruntime(job: Job) -> None:
    program = torch.onnx.export(job.net, job.inputs, dynamo=True, verbose=False)
    program.save(job.folder / "model.onnx")


def _onnxruntime8(job: Job) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, to = job.folder / "plain.onnx", job.folder / "model.onnx"
    quant_pre_process(job.floats / "model.onnx", plain)
    kinds = {"weight_type": QuantType.QInt8, "per_channel": True}
    if job.dynamic:
        quantize_dynamic(plain, to, **kinds)
    else:
        import onnx

        names = [one.name for one in onnx.load(plain).graph.input]
        left = iter([dict(zip(names, map(_array, one), strict=True)) for one in job.samples])
        reader = type("Samples", (CalibrationDataReader,), {"get_next": lambda _: next(left, None)})
        quantize_static(plain, to, reader(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QInt8, **kinds)
    plain.unlink()


def _litert(job: Job) -> None:
    import litert_torch

    litert_torch.convert(job.net, job.inputs).export(str(job.folder / "model.tflite"))


def _litert8(job: Job) -> None:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    source = str(job.floats / "model.tflite")
    made = quantizer.Quantizer(source)
    made.load_quantization_recipe(recipe.dynamic_wi8_afp32() if job.dynamic else recipe.static_wi8_ai8())
    interpreter = Interpreter(source)
    (name,) = interpreter.get_signature_list()
    takes = sorted(interpreter.get_signature_runner().get_input_details().items())  # it has no integers of 64 bits
    samples = [
        {key: _array(x).astype(to["dtype"]) for (key, to), x in zip(takes, one, strict=True)} for one in job.samples
    ]
    seen = made.calibrate({name: samples}) if made.need_calibration else None
    made.quantize(seen).export_model(str(job.folder / "model.tflite"))


def _ncnn(job: Job) -> None:
    import pnnx

    pnnx.export(job.net, str(job.folder / "model.pt"), job.inputs, fp16=False)
    for file in job.folder.iterdir():
        if ".ncnn." not in file.name or file.suffix == ".py":
            file.unlink()


def _openvino(job: Job) -> None:
    import openvino

    made = openvino.convert_model(job.net, example_input=job.inputs, input=[list(one.shape) for one in job.inputs])
    openvino.save_model(made, job.folder / "model.xml", compress_to_fp16=False)


def _openvino8(job: Job) -> None:
    import nncf
    import openvino

    plain = openvino.Core().read_model(job.floats / "model.xml")
    samples = nncf.Dataset([list(map(_array, one)) for one in job.samples])
    kind = nncf.ModelType.TRANSFORMER if job.dynamic else None
    made = nncf.quantize(plain, samples, model_type=kind, subset_size=len(job.samples))
    openvino.save_model(made, job.folder / "model.xml", compress_to_fp16=False)


def _torch(job: Job) -> None:
    """Beside it what there is to do: multiply-adds, weights that are read, bytes of inputs and outputs."""
    program = torch.export.export(job.net, job.inputs).module(check_guards=False)
    program.graph._tracer_cls = torch.fx.Tracer  # whoever loads it has not the exporter's
    torch.save(torch.fx.GraphModule(program, program.graph), job.folder / "model.pt")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    counted = FlopCounterMode(display=False)
    with counted, sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(False):  # fused kernels are not counted
        outputs = job.net(*job.inputs)
    layers = [one for one in job.net.modules() if not isinstance(one, torch.nn.Embedding)]  # of which few rows are read
    work = {
        "multiply_adds": counted.get_total_flops() // 2,
        "weights": sum(one.numel() for layer in layers for one in layer.parameters(recurse=False)),
        "moved_bytes": sum(one.nbytes for one in (*job.inputs, *outputs)),
    }
    (job.folder / WORK).write_text(json.dumps(work), encoding="utf-8")


def _compiled(job: Job) -> None:
    settings = {"freezing": True, "cpp.dynamic_threads": True}
    program = torch.export.export(job.net, job.inputs)
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(job.folder / "model.pt2"), inductor_configs=settings
    )


WAYS: dict[str, tuple[Callable[[Job], None], ...]] = {
    "onnxruntime": (_onnxruntime, _onnxruntime8),
    "litert": (_litert, _litert8),
    "ncnn": (_ncnn,),
    "openvino": (_openvino, _openvino8),
    "torch": (_torch,),
    "compiled": (_compiled,),
}
"""In fp32, and in 8 bits."""


def _array(value: Any) -> Any:
    return value.detach().contiguous().numpy()


def convert(asked: dict[str, Any]) -> Path:
    """Convert one net for one runtime.

    Raises:
        ExportError: its tools cannot.
    """
    out = Path(asked["out"])
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=out.parent) as fresh:
        folder = Path(fresh, "model")
        folder.mkdir()
        try:
            net, inputs, _, samples = make(load()[asked["net"]])
            job = Job(net, inputs, samples, folder, Path(asked["floats"]), asked["dynamic"])
            with torch.no_grad():
                net(*inputs)  # what it keeps after its first call would differ between two traces
                WAYS[asked["runtime"]][asked["bits"] == 8](job)
        except (Exception, SystemExit) as error:  # whatever the tools raise
            why = f"{type(error).__name__}: {str(error).strip()[:300]}"
            again = "./inv self.bench --what peers --runtimes onnxruntime"
            raise ExportError("It cannot be converted.", why, again) from error
        shutil.rmtree(out, ignore_errors=True)
        folder.rename(out)
    return out


if __name__ == "__main__":
    kept = prepare_packages()
    serve(convert)
