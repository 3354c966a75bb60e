"""``.npy`` files from a device or a user: every byte of the header is checked before NumPy sees one.

NumPy's reader evaluates the header as Python, allocates memory for any shape in it, and accepts booleans and negative
numbers as sizes. Here a header is the dictionary of three entries that NumPy and the runner write, and the file holds
exactly the elements that it names.

Format: numpy.lib.format's documentation, "Format Version 1.0" to "3.0".
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from core.errors import AnswerError
from deploy.transport.hearing import open_ordinary

if TYPE_CHECKING:
    import numpy as np

BFLOAT16 = "bfloat16"
NONE = "none"
"""No tensor but None: a scalar of no bytes, ``|V0``."""
Order = Literal["<", ">"]

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
_MAGIC = b"\x93NUMPY"
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_DESCR = re.compile(r"([<>|=]?)([biufcV])(\d{1,2})")
_ENTRY = re.compile(
    r"\s*'(?P<key>descr|fortran_order|shape)'\s*:\s*"
    r"(?:'(?P<descr>[^'\\]{1,16})'|(?P<order>True|False)|\((?P<shape>[0-9, ]*)\))\s*(?:,|(?=\s*}))"
)
_KEYS = {"descr": "descr", "fortran_order": "order", "shape": "shape"}
_SIZE = re.compile(r"\d{1,18}")


def load(path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """The dtype's name and the array, row-major and little-endian; bfloat16 (2-byte void) as its bits, ``uint16``.

    None is an array of no bytes.

    Raises:
        AnswerError: not a ``.npy`` file of numbers, or not as long as its header says.
    """
    import numpy as np

    name = path.name
    with _opened(path) as file:
        (order, kind, size), fortran, shape, begin = _checked(name, file)
        count = math.prod(shape)
        file.seek(begin)
        raw = np.fromfile(file, np.uint8, count * size) if count else np.zeros(0, np.uint8)
    if len(raw) != count * size:
        raise AnswerError(f"{name} is not a .npy file.", "it became shorter while it was read", _AGAIN)
    known = _known(kind, size)
    if known == NONE:
        return known, np.ndarray((), "V0")
    bits = "uint16" if known == BFLOAT16 else known
    array = raw.view(np.dtype(bits).newbyteorder(order)).reshape(shape, order="F" if fortran else "C")
    return known, np.ascontiguousarray(array, np.dtype(bits).newbyteorder("<")).reshape(shape)


def header(path: Path) -> tuple[str, tuple[int, ...]]:
    """The dtype's name and the shape; the elements are not read, but their number is checked.

    Raises:
        AnswerError: as `load`.
    """
    with _opened(path) as file:
        (_, kind, size), _, shape, _ = _checked(path.name, file)
    return _known(kind, size), shape


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with os.fdopen(open_ordinary(path), "rb") as file:
            yield file
    except OSError as error:
        raise AnswerError(f"{path.name} cannot be read.", str(error), _AGAIN) from error


def _checked(name: str, file: BinaryIO) -> tuple[tuple[Order, str, int], bool, tuple[int, ...], int]:
    """`_header`, after a check that the file is as long as it says."""
    total = os.fstat(file.fileno()).st_size
    code, fortran, shape, begin = _header(name, file.read(12 + HEADER))
    count, size = math.prod(shape), code[2]
    if total - begin != count * size:
        raise AnswerError(
            f"{name} is not a .npy file.",
            f"its header says {count:,} elements of {size} bytes, {total - begin:,} bytes follow",
            _AGAIN,
        )
    return code, fortran, shape, begin


def _known(kind: str, size: int) -> str:
    """The dtype's name."""
    if kind == "V":
        return BFLOAT16 if size else NONE
    return _KINDS[kind] + (str(8 * size) if kind != "b" else "")


def _header(name: str, head: bytes) -> tuple[tuple[Order, str, int], bool, tuple[int, ...], int]:
    """Byte order, kind and size of an element; whether column-major; shape; where the elements begin."""

    def bad(why: str) -> AnswerError:
        return AnswerError(f"{name} is not a .npy file.", why, _AGAIN)

    if head[:6] != _MAGIC or len(head) < 12 or head[6] not in (1, 2, 3):
        raise bad("it does not begin like one")
    begin = 10 if head[6] == 1 else 12
    length = int.from_bytes(head[8:begin], "little")
    if length > HEADER or len(head) < begin + length:
        raise bad(f"its header is said to have {length:,} bytes")
    entries = _entries(head[begin : begin + length].decode("latin-1"))
    if entries is None:
        raise bad("its header is not the three entries descr, fortran_order and shape")
    match = _DESCR.fullmatch(entries["descr"])
    kind, size = (match[2], int(match[3])) if match else ("", 0)
    good = (
        (kind == "V" and size in (0, 2))
        or (kind in _KINDS and f"{_KINDS[kind]}{8 * size}" in SIZES)
        or (kind, size) == ("b", 1)
    )
    if match is None or not good:
        raise AnswerError(
            f"{name} holds {entries['descr']!r}, which is not a type of numbers.",
            "only booleans, integers, floating-point and complex numbers are compared",
            _AGAIN,
        )
    shape = _shape(entries["shape"])
    if shape is None or (shape and not size):
        raise bad(f"its shape ({entries['shape'][:60]}) is not a shape")
    own: Order = "<" if sys.byteorder == "little" else ">"
    order: Order = "<" if match[1] == "<" else ">" if match[1] == ">" else own
    return (order, kind, size), entries["fortran_order"] == "True", shape, begin + length


def _entries(text: str) -> dict[str, str] | None:
    """The three entries by their names; ``None`` for any other text."""
    inside = re.fullmatch(r"\{(.*\})[ \n]*", text, re.DOTALL)
    if inside is None:
        return None
    found: dict[str, str] = {}
    at = 0
    while match := _ENTRY.match(inside[1], at):
        value = match[_KEYS[match["key"]]]
        if value is None or match["key"] in found:
            return None
        found[match["key"]] = value
        at = match.end()
    return found if len(found) == len(_KEYS) and inside[1][at:].strip() == "}" else None


def _shape(text: str) -> tuple[int, ...] | None:
    """``"2, 3"`` or ``"2,"`` or nothing; Python's own rule: one size needs its comma."""
    parts = [part.strip() for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()
    elif len(parts) == 1:
        return None
    if len(parts) > RANK or not all(_SIZE.fullmatch(part) for part in parts):
        return None
    return tuple(int(part) for part in parts)


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
