"""Architectures as programs, with what upstream's runtime computes with them; kept by digest. Imports torch late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.paths import cache_dir
from models.architectures.table import PORTABLE, Architecture, scheme_of
from models.lowering import shortcuts
from models.request import versions
from models.zoo.tables import HERE

SEED = 7


@dataclass(frozen=True)
class Reference:
    """An exported program and what belongs to it."""

    folder: Path
    """Holds ``model.pte``, ``inputN.npy`` and ``outputN.npy``: upstream's outputs after the last of ``runs``."""
    inputs: int
    tolerances: tuple[tuple[float, float], ...]
    """For each output how far it may be from upstream's: absolute, and relative to upstream's."""
    operators: tuple[str, ...]
    """Operators that no delegate took, as kernels are registered."""
    delegates: int
    runs: int


def _digest(architecture: Architecture, scheme: str) -> str:
    own = [architecture.source, *(HERE / "architectures" / name for name in ("making.py", "exporting.py"))]
    own += [HERE / name for name in ("lowering/quantize.py", "reference/tolerances.py", "request/partitioners.py")]
    parts = [architecture.maker, architecture.runs, scheme, versions(), [sha256_file(path) for path in own]]
    return sha256_bytes(json.dumps(parts).encode())[:20]


def _folder(architecture: Architecture, scheme: str) -> Path:
    base = cache_dir("tests", "architectures")
    return base / f"{architecture.name}-{scheme}-{_digest(architecture, scheme)}"


def _read(folder: Path) -> Reference:
    said = json.loads((folder / "reference.json").read_text(encoding="utf-8"))
    limits = tuple((float(one[0]), float(one[1])) for one in said["tolerances"])
    return Reference(folder, said["inputs"], limits, tuple(said["operators"]), said["delegates"], said["runs"])


def _upstreams(file: Path, inputs: Sequence[Any], runs: int) -> list[Any]:
    """Upstream's outputs of the last of ``runs`` executions."""
    from executorch.runtime import Runtime

    from models.loading import reference

    method = Runtime.get().load_program(file).load_method("forward")
    for _ in range(runs - 1):
        method.execute(list(inputs))
    # The runtime hands out its own memory.
    return [one.clone() for one in reference.flat(list(method.execute(list(inputs))))]


@shortcuts.in_lowering()
@shortcuts.in_torch()
def _lowered(program: Any, partitioners: list[Any]) -> Any:
    """As `models.lowering.lowering.lower` does it, without what only describes a program: half the time."""
    from executorch.backends.xnnpack.utils import configs
    from executorch.exir import to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(
        program,
        transform_passes=configs.get_transform_passes(),
        partitioner=partitioners,
        compile_config=configs.get_xnnpack_edge_compile_config(),
    )
    return edge.to_executorch(config=configs.get_xnnpack_executorch_backend_config())


def _make(architecture: Architecture, scheme: str, folder: Path) -> None:
    import importlib

    import torch

    from models.loading import Prepared, reference
    from models.lowering import quantize
    from models.reference import tolerances
    from models.request import partitioners
    from models.request.options import Options

    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    module, _, function = architecture.maker.partition(":")
    torch.manual_seed(SEED)
    made, inputs = getattr(importlib.import_module(module), function)()
    quantized = quantize.apply(Prepared(made, inputs, None, ()), scheme_of(scheme))
    # Lowering rewrites the graph; the tolerances look at what was meant.
    steps = tolerances.output_steps(quantized.program) if scheme_of(scheme).method == "pt2e" else []
    chosen = [] if scheme == PORTABLE else partitioners.make(partitioners.DEFAULT, Options())
    manager = _lowered(quantized.program, chosen)
    manager.save(str(folder / "model.pte"))
    outputs = _upstreams(folder / "model.pte", quantized.inputs, architecture.runs)
    for kind, tensors in (("input", quantized.inputs), ("output", outputs)):
        for index, one in enumerate(tensors):
            reference.save(folder, f"{kind}{index}", one)
    plan = manager.executorch_program.execution_plan[0]
    calls = [type(one.instr_args).__name__ for chain in plan.chains for one in chain.instructions]
    limits = tolerances.of_outputs(scheme_of(scheme), outputs, steps)
    said = {
        "inputs": len(quantized.inputs),
        "tolerances": [[one.atol, one.rtol] for one in limits],
        "operators": sorted(f"{one.name}.{one.overload}" if one.overload else one.name for one in plan.operators),
        "delegates": calls.count("DelegateCall"),
        "runs": architecture.runs,
    }
    write_json(folder / "reference.json", said)


def references(requested: Sequence[tuple[Architecture, str]]) -> list[Reference]:
    """Export what is not kept yet, and give all of it, in the order asked for.

    Raises:
        ExportError: one cannot be exported.
    """
    found = []
    for architecture, scheme in requested:
        folder = _folder(architecture, scheme)
        if not (folder / "reference.json").is_file():
            with locked(f"architecture-{folder.name}"):
                if not (folder / "reference.json").is_file():
                    with new_folder(folder) as fresh:
                        _make(architecture, scheme, fresh)
        found.append(_read(folder))
    return found
