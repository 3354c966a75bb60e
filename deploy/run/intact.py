"""Is a program file whole? What its header says, seen before minutes of building; the runner checks all the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from core.errors import ProgramError
from core.formats.program import DESCRIPTION, format_of, load_program

_HEADER = 40
"""Bytes of a ``.pte``'s header, as ``runtime/program/program_file.cpp`` reads it."""
_COPY = "a copy or a download was interrupted"
_AGAIN = "copy it again, or export it again with --force"
_WIRES = {1: 8, 5: 4}
"""Bytes of protobuf's wire types of a fixed length."""
_MESSAGE = 2
_MOST_FIELDS = 100
"""Fields of an ONNX ``ModelProto`` have lower numbers (26 at most so far)."""


def check_whole(path: Path) -> None:
    """Refuse a truncated program, or a file that is not a program.

    Args:
        path: a ``.pte``, ``.onnx`` or ``.ort`` file, a folder of ``./inv export``, or its description.

    Raises:
        ProgramError: the file is empty, ends before its header says so, or begins as no program does.
    """
    if path.is_dir() or path.name == DESCRIPTION:
        load_program(path if path.is_dir() else path.parent)
        return
    size = path.stat().st_size
    if size == 0:
        raise ProgramError(f"{path} is empty.", _COPY, _AGAIN)
    with path.open("rb") as file:
        if format_of(path) == "onnx":  # which of the two, the runner, too, sees by the content
            if _is_ort(file):
                _check_ort(path, file, size)
            else:
                _check_onnx(path, file, size)
        elif path.suffix.lower() == ".pte":
            _check_pte(path, file.read(_HEADER), size)


def _check_pte(path: Path, head: bytes, size: int) -> None:
    if len(head) >= 8 and head[4:6] != b"ET":
        raise ProgramError(
            f"{path} is not a program: its identifier is missing.",
            "another kind of file was named, or it was damaged",
            "name a .pte file, as ./inv export writes it",
        )
    want = _HEADER
    if len(head) == _HEADER:
        if head[8:12] != b"eh00":
            return  # of old: the flatbuffer alone, whose size is nowhere
        length, program, base, segments = (
            int.from_bytes(head[at : at + count], "little") for at, count in ((12, 4), (16, 8), (24, 8), (32, 8))
        )
        want = max(program, base + (segments if length >= 32 else 0) if base else 0)
    if want > size:
        raise ProgramError(f"{path} is truncated: {size:,} of {want:,} bytes.", _COPY, _AGAIN)


def _is_ort(file: BinaryIO) -> bool:
    head = file.read(8)
    file.seek(0)
    return head[4:] == b"ORTM"


def _check_ort(path: Path, file: BinaryIO, size: int) -> None:
    """Find the text of the root table's first field, ONNX Runtime's version: its converter writes it as the last."""

    def number(at: int, count: int = 4, *, signed: bool = False) -> int:
        if not 0 <= at <= size - count:
            raise ProgramError(f"{path} is cut short: {size:,} of {max(at, 0) + count:,} bytes or more.", _COPY, _AGAIN)
        file.seek(at)
        return int.from_bytes(file.read(count), "little", signed=signed)

    table = number(0)
    field = number(table - number(table, signed=True) + 4, 2)
    if not field:
        return  # without a version
    text = table + field + number(table + field)
    length = number(text)
    number(text + 4 + length, 1)


def _check_onnx(path: Path, file: BinaryIO, size: int) -> None:
    """Go over the outermost fields of the protobuf message: few, of which the graph has nearly all bytes."""
    while (at := file.tell()) < size:
        tag = _number(file)
        field, wire = tag >> 3, tag & 7
        if not 0 < field < _MOST_FIELDS or wire not in (0, _MESSAGE, *_WIRES):
            raise ProgramError(
                f"{path} is damaged, or no ONNX model: no field begins at byte {at:,}.",
                "another kind of file was named, or it was changed",
                _AGAIN,
            )
        length = _WIRES.get(wire) or _number(file)
        end = file.tell() + (0 if wire == 0 else length)
        if end > size:
            raise ProgramError(f"{path} is cut short: {size:,} of {end:,} bytes or more.", _COPY, _AGAIN)
        file.seek(end, os.SEEK_SET)


def _number(file: BinaryIO) -> int:
    """Read protobuf's variable-length integer; a file that ends in it gives a number that is too large."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return 1 << 62
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return 1 << 62
