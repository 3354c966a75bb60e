"""``.npy`` files from a device or a user, read by NumPy after a look at their header.

NumPy takes any shape in a header, and makes room for it: here a file must hold exactly the elements that it names, and
they must be numbers.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from core.errors import AnswerError
from deploy.transport.hearing import open_ordinary

Array = np.ndarray[Any, Any]

BFLOAT16 = "bfloat16"
NONE = "none"
"""No tensor but None: a scalar of no bytes, ``|V0``."""

SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8, BFLOAT16: 2, "complex64": 8, "complex128": 16, NONE: 0,
}  # fmt: skip
"""Bytes of an element, by the dtype's name."""

RANK = 64
"""Dimensions at most: NumPy's own limit."""
HEADER = 4096
"""Bytes of a header at most."""

_AGAIN = "a device's file: the same command again; your own: write it with numpy.save(path, array)"


def load(path: Path) -> tuple[str, Array]:
    """The dtype's name and the array, row-major and little-endian; bfloat16 (2-byte void) as its bits, ``uint16``.

    None is an array of no bytes.

    Raises:
        AnswerError: not a ``.npy`` file of numbers, or not as long as its header says.
    """
    with _opened(path) as (file, name, dtype, shape, fortran):
        count = math.prod(shape)
        raw = np.fromfile(file, np.uint8, count * dtype.itemsize) if count else np.zeros(0, np.uint8)
    if len(raw) != count * dtype.itemsize:
        raise AnswerError(f"{path.name} is not a .npy file.", "it became shorter while it was read", _AGAIN)
    if name == NONE:
        return name, np.ndarray((), "V0")
    bits = np.dtype(np.uint16) if name == BFLOAT16 else dtype
    array = raw.view(bits).reshape(shape, order="F" if fortran else "C")
    return name, np.ascontiguousarray(array, bits.newbyteorder("<")).reshape(shape)


def widen(dtype: str, array: Array) -> Array:
    """Bfloat16's bits as float32; everything else as it is."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == BFLOAT16 else array


def header(path: Path) -> tuple[str, tuple[int, ...]]:
    """The dtype's name and the shape; the elements are not read, but their number is checked.

    Raises:
        AnswerError: as `load`.
    """
    with _opened(path) as (_, name, _, shape, _):
        return name, shape


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, str, np.dtype[Any], tuple[int, ...], bool]]:
    """The file at its first element, its dtype's name, and what its header says, checked."""

    def bad(why: str) -> AnswerError:
        return AnswerError(f"{path.name} is not a .npy file.", why[:120], _AGAIN)

    try:
        with os.fdopen(open_ordinary(path), "rb") as file:
            try:
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
                shape, fortran, dtype = read(file, max_header_size=HEADER)
            except Exception as error:  # whatever a strange header lets NumPy's parser raise
                raise bad(f"its header cannot be read: {error}") from error
            name = {("V", 2): BFLOAT16, ("V", 0): NONE}.get((dtype.kind, dtype.itemsize), dtype.name)
            if name not in SIZES or dtype.fields is not None:
                raise AnswerError(
                    f"{path.name} holds {dtype.str[:20]!r}, which is not a type of numbers.",
                    "only booleans, integers, floating-point and complex numbers are compared",
                    _AGAIN,
                )
            sizes = all(type(size) is int and size >= 0 for size in shape)
            if not sizes or len(shape) > RANK or (shape and not dtype.itemsize):
                raise bad(f"its shape ({', '.join(map(str, shape[:9]))}) is not a shape")
            follow, count = os.fstat(file.fileno()).st_size - file.tell(), math.prod(shape)
            if follow != count * dtype.itemsize:
                raise bad(f"its header says {count:,} elements of {dtype.itemsize} bytes, {follow:,} bytes follow")
            yield file, name, dtype, shape, fortran
    except OSError as error:
        raise AnswerError(f"{path.name} cannot be read.", str(error), _AGAIN) from error


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a ``.npy`` file with such an array, its header included, at most.

    Raises:
        AnswerError: an unknown dtype.
    """
    if dtype not in SIZES:
        raise AnswerError(
            f"An output of dtype {dtype[:40]!r} cannot be fetched.",
            "NumPy has no dtype of that name",
            "convert the output in the model, as y.to(torch.float32), and export it again",
        )
    return math.prod(shape) * SIZES[dtype] + HEADER
