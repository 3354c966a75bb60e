"""All of our sound programs by name: ``sizes-linear-delegated``, the family first; and the process that makes them.

``python -m verify.sound.table`` is the process of `verify.programs.Maker`. It makes a program a request, and runs it on
upstream's runtime. A folder has a program, and of each of its runs the inputs, the outputs of upstream's runtime and
PyTorch's; `verify.agree.sound` reads it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.files import new_folder, write_json
from models.loading import reference
from models.lowering import shortcuts
from models.reference import tolerances
from models.zoo.schemes import get_scheme
from verify.programs import serve
from verify.sound import MODEL, RECORD, flow, made, runtime, sizes
from verify.sound.making import Meant, Program, Run

_SCHEMES = {"float": "fp32", "half": "fp16", "static": "qs8", "dynamic": "qd8_qc8w"}
"""The scheme of the zoo with the same arithmetic: its tolerances hold (docs/proofs.md)."""
_KEPT_WORDS = 400
"""Letters of an error that are kept."""

EACH = (
    "flow-branch-of-layers", "flow-each", "flow-carried", "state-written", "state-methods", "state-methods-delegated",
    "made-lines-weights-apart",
)  # fmt: skip
"""One of each kind that the family ``runtime`` leaves to others: branches, loops, state, methods, files of weights."""


def programs() -> dict[str, Callable[[], Program]]:
    """Each is made when it is called."""
    families = {
        "sizes": sizes.PROGRAMS, "state": flow.STATE, "flow": flow.PROGRAMS, "types": sizes.TYPES,
        "made": made.PROGRAMS, "runtime": runtime.PROGRAMS,
    }  # fmt: skip
    return {f"{family}-{name}": make for family, found in families.items() for name, make in found.items()}


def _upstreams(program: Program, run: Run) -> Any:
    """What upstream's runtime gives for one start of a program; all its methods are loaded at first."""
    from executorch.extension.pybindings import portable_lib

    data = next(iter(program.data.values()), None)
    module = portable_lib._load_for_executorch_from_buffer(program.buffer, *([data] if data else []))

    def given(inputs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs)

    for method, inputs in run.first:
        module.run_method(method, given(inputs))
    found = None
    for _ in range(run.executions):
        found = module.run_method(run.method, given(run.inputs))
    return found


def _saved(folder: Path, name: str, values: Any) -> list[str]:
    return [reference.save(folder, f"{name}{index}", one).file for index, one in enumerate(reference.flat(values))]


def _kept(folder: Path, number: int, program: Program, run: Run) -> dict[str, Any]:
    """Both sides of a run as files, and what `verify.agree.sound` reads of it."""
    refused, outputs = "", []
    try:
        outputs = reference.flat(_upstreams(program, run))
    except RuntimeError as error:
        refused = " ".join(f"{type(error).__name__}: {error}".split())[:_KEPT_WORDS]
    meant = program.meant.get(run.method, Meant())
    expected = list(run.results) if refused else outputs
    limits = tolerances.of_outputs(
        get_scheme(_SCHEMES[meant.kind]), expected, meant.steps[: len(expected)], shallow=meant.shallow
    )
    return {
        "inputs": _saved(folder, f"{number}-input", run.inputs),
        "outputs": _saved(folder, f"{number}-output", outputs),
        "eager": _saved(folder, f"{number}-eager", run.results),
        "first": [[name, _saved(folder, f"{number}-first{at}-", given)] for at, (name, given) in enumerate(run.first)],
        "limits": [limit.model_dump(mode="json") for limit in limits],
        "method": run.method,
        "runs": run.executions,
        "data": [f"{name}.ptd" for name in program.data],
        "refused": refused,
    }


def keep(asked: dict[str, Any]) -> Path:
    """One program by its name, into a folder; the same random numbers whenever it is made."""
    seed = zlib.crc32(asked["name"].encode())
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    program = programs()[asked["name"]]()
    with new_folder(Path(asked["folder"])) as folder:
        (folder / MODEL).write_bytes(program.buffer)
        for name, blob in program.data.items():
            (folder / f"{name}.ptd").write_bytes(blob)
        runs = [run for run in program.runs if run.results]  # others are inputs that have to be refused
        write_json(folder / RECORD, [_kept(folder, number, program, run) for number, run in enumerate(runs)])
    return Path(asked["folder"])


if __name__ == "__main__":
    import importlib

    torch.set_num_threads(1)
    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    with shortcuts.in_torch():
        serve(keep)
