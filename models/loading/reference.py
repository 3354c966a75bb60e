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
from core.formats.program import TensorFile
from models.request import versions
from models.users.users_code import last_lines

_NONE = numpy.ndarray((), "V0")
"""What a file has in place of a tensor for ``None``."""
_IMAGES = (0, 2, 3, 1)
"""Dimensions of images as they follow in memory where channels come last."""


def to_numpy(tensor: Any) -> Any:
    """The tensor as an array, row-major; bfloat16 as 2-byte void, the bits as they are; ``None`` as empty void.

    Raises:
        ExportError: NumPy has no such type, as complex32.
    """
    if tensor is None:
        return _NONE
    plain = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view("V2")
    try:
        return plain.numpy()
    except TypeError as error:
        name = str(plain.dtype).removeprefix("torch.")
        raise ExportError(
            f"An input or output is a tensor of {name}, for which a file has no form.",
            str(error),
            "convert it in the model, as y.to(torch.complex64) or y.float(), and export it again",
            [name],
        ) from error


def save(folder: Path, name: str, tensor: Any) -> TensorFile:
    """Write ``<name>.npy`` (format 1.0) and describe it."""
    array = to_numpy(tensor)
    numpy.save(folder / f"{name}.npy", array, allow_pickle=False)
    return TensorFile(
        file=f"{name}.npy",
        dtype={"V2": "bfloat16", "V0": "none"}.get(array.dtype.str[1:], array.dtype.name),
        shape=tuple(int(size) for size in array.shape),
        sha256=sha256_bytes(array.tobytes()),
        order=_IMAGES if tensor is not None and images(tensor) else (),
    )


def load(folder: Path, tensor: TensorFile) -> Any:
    """Read back what `save` wrote, as a tensor, in its memory order."""
    if tensor.dtype == "none":
        return None
    array = numpy.load(folder / tensor.file, allow_pickle=False)
    if tensor.dtype == "bfloat16":
        found = torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    else:
        found = torch.from_numpy(array)
    return found.clone(memory_format=torch.channels_last) if tensor.order else found


def images(tensor: Any) -> bool:
    """Whether it is a row of images whose channels come last in memory."""
    return tensor.dim() == len(_IMAGES) and not tensor.is_contiguous() and _as_in(torch.channels_last, tensor)


def _as_in(form: Any, tensor: Any) -> bool:
    return bool(tensor.stride() == torch.empty_like(tensor, device="meta", memory_format=form).stride())


def laid_out(tensor: Any) -> Any:
    """The tensor with plain strides: of images whose channels come last in memory so, of everything else row-major.

    Strides become part of the program, and upstream's Python runtime takes these two orders alone. A picture that was
    transposed from another layout, or a matrix ``x.T``, has a third one by accident.
    """
    if tensor.layout != torch.strided or images(tensor) or _as_in(torch.contiguous_format, tensor):
        return tensor
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def flat(value: Any) -> list[Any]:
    """The tensors of an eager model's result, in the order in which a program returns them; ``None`` is one of them.

    Raises:
        ExportError: it holds something else than tensors, numbers and ``None``.
    """
    leaves = torch.utils._pytree.tree_leaves(value)  # what torch.export itself uses
    return [leaf if leaf is None or isinstance(leaf, torch.Tensor) else _number(leaf) for leaf in leaves]


def _number(leaf: Any) -> Any:
    if isinstance(leaf, (bool, int, float)):
        return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
    raise ExportError(
        f"The model returns a {type(leaf).__name__}, for which a program has no form.",
        "outputs are tensors, numbers and None",
        "return tensors, in tuples, lists or dictionaries",
        [type(leaf).__name__],
    )


def numbers(outputs: Sequence[Any]) -> list[Any]:
    """The outputs as tensors alone: in place of ``None`` stands one without elements."""
    return [torch.empty(0) if one is None else one for one in outputs]


def wide(tensor: Any) -> Any:
    """The numbers in float64; of complex ones both parts, of ``None`` nothing."""
    if tensor is None:
        return torch.empty(0, dtype=torch.float64)
    tensor = tensor.detach()
    return torch.view_as_real(tensor.resolve_conj()).double() if tensor.is_complex() else tensor.double()


def eager(module: Any, inputs: Sequence[Any]) -> list[Any]:
    """Outputs of the model in PyTorch.

    Raises:
        ExportError: it does not run on its example inputs.
    """
    try:
        with torch.no_grad():
            # A copy: a model with state returns views of what its next execution changes.
            return [one if one is None else one.clone() for one in flat(module(*(x.clone() for x in inputs)))]
    except ExportError:
        raise
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
