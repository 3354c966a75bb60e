"""Reference inputs and outputs as files, and the model's outputs in PyTorch. Imports torch."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from core.errors import ExportError
from core.files import sha256_bytes
from core.program import TensorFile
from models.request import versions
from models.users_code import last_lines


def to_numpy(tensor: Any) -> Any:
    """The tensor as an array, row-major; bfloat16 as 2-byte void, the bits as they are."""
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view("V2")
    return plain.numpy()


def save(folder: Path, name: str, tensor: Any) -> TensorFile:
    """Write ``<name>.npy`` (format 1.0) and describe it."""
    array = numpy.ascontiguousarray(to_numpy(tensor)).reshape(tuple(tensor.shape))
    numpy.save(folder / f"{name}.npy", array, allow_pickle=False)
    return TensorFile(
        file=f"{name}.npy",
        dtype="bfloat16" if array.dtype.kind == "V" else array.dtype.name,
        shape=tuple(int(size) for size in array.shape),
        sha256=sha256_bytes(array.tobytes()),
    )


def load(folder: Path, tensor: TensorFile) -> Any:
    """Read back what `save` wrote, as a tensor."""
    array = numpy.load(folder / tensor.file, allow_pickle=False)
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def flat(value: Any) -> list[Any]:
    """The tensors of an eager model's result, in the order in which a program returns them."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)  # what torch.export itself uses
    return [leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves]


def eager(module: Any, inputs: Sequence[Any]) -> list[Any]:
    """Outputs of the model in PyTorch.

    Raises:
        ExportError: it does not run on its example inputs.
    """
    try:
        with torch.no_grad():
            # A copy: a model with state returns views of what its next execution changes.
            return [one.clone() for one in flat(module(*(x.clone() for x in inputs)))]
    except Exception as error:  # the user's own forward
        raise ExportError(
            "The model does not run on its example inputs.",
            f"{type(error).__name__}: {last_lines(error)}",
            "call module(*example_inputs) in Python and fix what it says",
        ) from error


def engine(host: bool) -> str:
    """What computed the outputs."""
    found = versions()
    if host:
        return f"executorch {found['executorch']} (Python runtime, {platform.machine()})"
    return f"torch {found['torch']} (eager, {platform.machine()})"
