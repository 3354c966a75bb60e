"""Execute a model with another runtime; flags and answer are those of ``pte_runner``.

``python running.py RUNTIME PACKAGES --model_path=... --inputs=a.npy,b.npy --cpu_threads=1 ...`` with the folder of the
runtimes' packages. A process of its own for each measurement, which imports nothing of Slipway.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

Loaded = tuple[Callable[[], Any], Callable[[], Sequence[Any]]]
"""Executes once, with the inputs that it was loaded with; and gives the outputs of the last execution."""


def _onnxruntime(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    for one, value in zip(session.get_inputs(), inputs, strict=True):
        bound.bind_cpu_input(one.name, value)
    for one in session.get_outputs():
        bound.bind_output(one.name)
    return lambda: session.run_with_iobinding(bound), bound.copy_outputs_to_cpu


def _litert(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model_path=model, num_threads=threads)
    made.allocate_tensors()
    (names,) = made.get_signature_list().values()
    runner = made.get_signature_runner()
    takes = [runner.get_input_details()[name] for name in sorted(names["inputs"])]
    gives = [runner.get_output_details()[name] for name in sorted(names["outputs"])]
    for one, value in zip(takes, inputs, strict=True):
        scale, zero = one["quantization"]  # in 8 bits it takes and gives integers
        whole = numpy.clip(numpy.rint(value / scale) + zero, -128, 127) if scale else value
        made.set_tensor(one["index"], whole.astype(one["dtype"]))

    def output(one: Any) -> Any:
        scale, zero = one["quantization"]
        found = made.get_tensor(one["index"])
        return (found.astype(numpy.float32) - zero) * scale if scale else found

    return made.invoke, lambda: [output(one) for one in gives]


def _ncnn(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads
    for file, load in ((model, net.load_param), (model.replace(".param", ".bin"), net.load_model)):
        if load(file):
            raise RuntimeError(f"ncnn cannot load {Path(file).name}")
    whole = [value.astype(numpy.int32) if value.dtype == numpy.int64 else value for value in inputs]
    given = [ncnn.Mat(value[0] if value.ndim > 1 else value).clone() for value in whole]  # it has no batches
    last: list[Any] = []

    def execute() -> None:
        last.clear()
        extractor = net.create_extractor()
        for index, value in enumerate(given):
            extractor.input(f"in{index}", value)
        for name in net.output_names():
            failed, found = extractor.extract(name)
            if failed:
                raise RuntimeError(f"ncnn cannot compute {name}")
            last.append(found)

    return execute, lambda: [numpy.array(one) for one in last]


def _openvino(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    for index, value in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(value, shared_memory=True))

    def execute() -> None:  # infer() copies the outputs, too
        request.start_async()
        request.wait()

    return execute, lambda: [one.data for one in request.output_tensors]


def _torch(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    called = torch.load(model, weights_only=False)
    return _called(lambda given: called(*given), inputs)


def _compiled(model: str, threads: int, inputs: Sequence[Any]) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    # What torch._inductor.aoti_load_package calls, without the seconds of loading the compiler.
    return _called(torch._C._aoti.AOTIModelPackageLoader(model, "model", False, 1, -1).boxed_run, inputs)


def _called(model: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> Loaded:
    import torch

    last: list[Any] = []

    def execute() -> None:
        with torch.inference_mode():
            last[:] = model([torch.from_numpy(value) for value in inputs])  # the list is taken

    return execute, lambda: [one.numpy() for one in last]


RUNTIMES: dict[str, tuple[str, Callable[[str, int, Sequence[Any]], Loaded]]] = {
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "litert": ("ai_edge_litert.interpreter", _litert),
    "ncnn": ("ncnn", _ncnn),
    "openvino": ("openvino", _openvino),
    "torch": ("torch", _torch),
    "compiled": ("torch", _compiled),
}
"""What is imported before anything is timed, and what loads a model."""


def _peak() -> int:
    """Bytes."""
    words = Path("/proc/self/status").read_text(encoding="ascii")
    return int(words.partition("VmHWM:")[2].split()[0]) * 1024


def _libraries() -> set[Path]:
    """The shared libraries of packages in this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {Path(line.split(maxsplit=5)[5]) for line in lines if ".so" in line and "/lib-dynload/" not in line}


def main() -> None:
    """Measure, and print the answer."""
    parser = argparse.ArgumentParser()
    for name in ("runtime", "packages", "--model_path", "--inputs", "--output_file"):
        parser.add_argument(name)
    for name in ("--num_executions", "--warmup", "--cpu_threads"):
        parser.add_argument(name, type=int)
    parser.add_argument("--json", action="store_true")  # as it always answers
    asked = parser.parse_args()
    sys.path.insert(0, asked.packages)
    inputs = [numpy.load(file) for file in asked.inputs.split(",")]
    peak, libraries = _peak(), _libraries()
    module, load = RUNTIMES[asked.runtime]
    importlib.import_module(module)
    begun = time.perf_counter()
    execute, outputs = load(asked.model_path, asked.cpu_threads, inputs)
    loaded = time.perf_counter() - begun
    times = []
    for _ in range(asked.warmup + asked.num_executions):
        begun = time.perf_counter()
        execute()
        times.append((time.perf_counter() - begun) * 1000)
    answer = {
        "load_ms": loaded * 1000,
        "latency_ms": {"all": times[asked.warmup :]},
        "peak_rss_bytes": _peak() - peak,
        "library_bytes": sum(file.stat().st_size for file in _libraries() - libraries if file.is_file()),
    }
    if asked.output_file:
        for index, value in enumerate(outputs()):
            numpy.save(f"{asked.output_file}{index}.npy", value)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
