"""The other end of `models.reference.host`: runs programs on upstream's Python runtime, one request a line.

A process of its own because the runtime may crash on a program that lowering got wrong:
``python -m models.reference.hostrun``, or a copy of the exporter's process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core.formats.program import BY_ONNX, TensorFile
from models.lowering.progress import trace

_SAID = re.compile(r"^\[(?!cpuinfo)[\w.]+:\d+\] (.+)", re.MULTILINE)
"""A line of the runtime's own log."""


def _missing(names: list[str]) -> list[str]:
    """Those of these backends and operators that this wheel's runtime lacks."""
    from executorch.runtime import Runtime

    runtime = Runtime.get()
    have = {*runtime.backend_registry.registered_backend_names, *runtime.operator_registry.operator_names}
    return [name for name in names if name not in have]


def _run(request: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Execute a program on the inputs beside it; write its outputs beside it, as ``outputN.npy``.

    Outputs of a later execution are ``outputN-EXECUTION.npy``.
    """
    from executorch.runtime import Runtime

    from models.loading import reference

    folder, keep = Path(request["folder"]), request.get("executions") or [1]
    tensors = [reference.load(folder, TensorFile.model_validate(one)) for one in request["inputs"]]
    program = Runtime.get().load_program(folder / request["file"])
    earlier = [(program.load_method(name), files) for name, files in request.get("first", ())]
    method = program.load_method(request["method"])
    # All of them are loaded before one runs: a load gives the state its first values.
    for one, files in earlier:
        one.execute([reference.load(folder, TensorFile.model_validate(file)) for file in files])
    found = []
    for number in range(1, max(keep) + 1):
        values = method.execute(tensors)
        if number in keep:
            outputs = reference.flat(values)
            end = f"-{number}" if number > 1 else request.get("end", "")
            found.append(
                [reference.save(folder, f"output{index}{end}", one).model_dump() for index, one in enumerate(outputs)]
            )
    return found


def _said(log: Path, begin: int) -> list[str]:
    """What the runtime said first, which is the cause, and at which operator; of the log from ``begin`` on."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = _SAID.findall(file.read().decode(errors="replace"))
    return list(dict.fromkeys([*lines[:1], *[one for one in lines if " operator " in one][:1]]))


Answer = dict[str, Any]


def answer(
    request: Answer, run: Callable[[Answer], Answer], explain: Callable[[Exception, Answer, int], Answer]
) -> Answer:
    """The answer to a request; what is printed meanwhile goes to its log.

    Args:
        explain: the answer after a failure, with the place in the log where the request began.
    """
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    begin = os.lseek(log, 0, os.SEEK_END)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        return run(request)
    except OSError as error:
        return {"errno": error.errno, "error": str(error)}
    except Exception as error:  # noqa: BLE001  # whatever the runtime raises is the answer
        explained = explain(error, request, begin)
        trace(error)
        return explained


def serve(
    requests: Iterable[str], run: Callable[[Answer], Answer], explain: Callable[[Exception, Answer, int], Answer]
) -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # the runtime's output must not mix with the answers
    for line in requests:
        answers.write(json.dumps(answer(json.loads(line), run, explain)) + "\n")


def _requested(request: Answer) -> Answer:
    return {"missing": _missing(request["names"])} if "names" in request else {"executions": _run(request)}


def _explained(error: Exception, request: Answer, begin: int) -> Answer:
    said = _said(Path(request["log"]), begin)
    found = {"error": "\n".join([f"{type(error).__name__}: {error}", *said])}
    if any(" operator " in one for one in said):
        found["fix"] = f"{BY_ONNX}: that runtime has kernels of its own"
    return found


def _requests() -> Iterator[str]:
    importlib.import_module("executorch.runtime")
    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    yield from os.fdopen(os.dup(0), encoding="utf-8")


def main() -> None:
    """Answer with upstream's runtime."""
    serve(_requests(), _requested, _explained)
    gc.freeze()  # Python's last look for cycles takes a second with all of torch in memory


if __name__ == "__main__":
    main()
