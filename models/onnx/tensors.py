"""Reference tensors as files, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from core.files import sha256_bytes
from core.formats.program import TensorFile


def save(folder: Path, name: str, array: Any) -> TensorFile:
    """Write ``<name>.npy`` (format 1.0, row-major, little-endian) and describe it."""
    plain = numpy.asarray(array, order="C")
    plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    numpy.save(folder / f"{name}.npy", plain, allow_pickle=False)
    return TensorFile(
        file=f"{name}.npy",
        dtype=plain.dtype.name,
        shape=tuple(int(size) for size in plain.shape),
        sha256=sha256_bytes(plain.tobytes()),
    )


def load(folder: Path, tensors: Sequence[TensorFile]) -> list[Any]:
    """The arrays of ``tensors``, in their order."""
    return [numpy.load(folder / one.file, allow_pickle=False) for one in tensors]
