"""Architectures as programs, with what upstream's runtime computes with them; kept by digest. Imports torch late."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.paths import cache_dir
from models.architectures.table import PORTABLE, Architecture, scheme_of
from models.request import versions
from models.tables import HERE

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
    own += [HERE / f"{name}.py" for name in ("lowering", "quantize", "tolerances", "partitioners")]
    parts = [repr(architecture), scheme, versions(), [sha256_file(path) for path in own]]
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

    from models import reference

    method = Runtime.get().load_program(file).load_method("forward")
    for _ in range(runs - 1):
        method.execute(list(inputs))
    # The runtime hands out its own memory.
    return [one.clone() for one in reference.flat(list(method.execute(list(inputs))))]


def _make(architecture: Architecture, scheme: str, folder: Path) -> None:
    import importlib

    import torch

    from models import delegation, lowering, partitioners, quantize, reference, tolerances
    from models.loading import Prepared
    from models.options import Options

    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    module, _, function = architecture.maker.partition(":")
    torch.manual_seed(SEED)
    made, inputs = getattr(importlib.import_module(module), function)()
    quantized = quantize.apply(Prepared(made, inputs, None, ()), scheme_of(scheme))
    chosen = [] if scheme == PORTABLE else partitioners.make(partitioners.DEFAULT, Options())
    lowered = lowering.lower(copy.deepcopy(quantized.program), chosen)
    where = delegation.describe(lowered)
    lowered.manager.save(str(folder / "model.pte"))
    outputs = _upstreams(folder / "model.pte", quantized.inputs, architecture.runs)
    for kind, tensors in (("input", quantized.inputs), ("output", outputs)):
        for index, one in enumerate(tensors):
            reference.save(folder, f"{kind}{index}", one)
    limits = tolerances.tolerances(quantized.program, scheme_of(scheme), outputs)
    said = {
        "inputs": len(quantized.inputs),
        "tolerances": [[one.atol, one.rtol] for one in limits],
        "operators": [one.name for one in where.outside],
        "delegates": where.calls,
        "runs": architecture.runs,
    }
    write_json(folder / "reference.json", said)


def references(wanted: Sequence[tuple[Architecture, str]]) -> list[Reference]:
    """Export what is not kept yet, and give all of it, in the order asked for.

    Raises:
        ExportError: one cannot be exported.
    """
    found = []
    for architecture, scheme in wanted:
        folder = _folder(architecture, scheme)
        if not (folder / "reference.json").is_file():
            with locked(f"architecture-{folder.name}"):
                if not (folder / "reference.json").is_file():
                    with new_folder(folder) as fresh:
                        _make(architecture, scheme, fresh)
        found.append(_read(folder))
    return found
