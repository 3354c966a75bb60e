"""Program files, looked at before minutes of building: is one whole, as far as its header says; where are its weights.

Weights of a ``.pte`` may be stored apart from it, in a ``.ptd`` file: found, read, and compared with its needs.

Format: ``flat_tensor.fbs`` and ``flat_tensor_header.h`` of ExecuTorch's SDK. Of the file, only the names are read; the
runner checks the rest before it uses it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from core.errors import ProgramError
from core.formats.program import DESCRIPTION, load_program

SUFFIX = ".ptd"

_HEADER = 64
_NAMES = 1 << 28
"""Bytes of names and layouts at most."""
_AGAIN = "copy the file again, or export the model again"


def find(program: Path, wanted: Sequence[str], named: Path | None) -> Path | None:
    """The file with the weights ``wanted`` of ``program``: ``named``, of the program's name, or the one that has them.

    A program's delegates may need weights that nothing names before it is loaded: a file of the program's own name is
    taken even if nothing is wanted.

    Raises:
        ProgramError: there is none, none has all, several have, or the named one is damaged.
    """
    own = program.with_suffix(SUFFIX)
    file = named or (own if own.is_file() else None)
    if file is not None:
        lacking = lacks(file, wanted)
        if lacking:
            raise ProgramError(
                f"{file} lacks {_count(lacking)} that {program} needs: {_list(lacking)}.",
                "it was exported with another program",
                "name the one that was exported with it: --data FILE.ptd",
                lacking,
            )
        return file
    if not wanted:
        return None
    beside = sorted(program.parent.glob(f"*{SUFFIX}"))
    complete = [each for each in beside if _has(each, wanted)]
    if len(complete) == 1:
        return complete[0]
    why = f"there is no {own.name} beside it"
    if beside:
        have = f"several have them: {_list([each.name for each in complete])}" if complete else "no other file has them"
        why += f", and {have}"
    raise ProgramError(
        f"{program} has {_count(wanted)} stored apart from it: {_list(wanted)}.",
        why,
        "name the file that was exported with it: --data FILE.ptd",
        list(wanted),
    )


def lacks(file: Path, wanted: Sequence[str]) -> list[str]:
    """Those of the names ``wanted`` that a ``.ptd`` file has not; a flatbuffer keeps a text behind its length.

    Raises:
        ProgramError: it is missing or truncated, or another kind of file.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_HEADER)
            if len(head) < _HEADER or head[4:8] != b"FT01" or head[8:12] != b"FH01":
                raise ProgramError(
                    f"{file} is not a file of weights.", "it does not begin like one", "name a .ptd file", [str(file)]
                )
            offset, length, base, segments = (int.from_bytes(head[at : at + 8], "little") for at in (16, 24, 32, 40))
            if size < base + segments:
                raise ProgramError(
                    f"{file} is truncated: {size:,} of {base + segments:,} bytes.", "an interrupted copy", _AGAIN
                )
            data = stream.read(min(offset + length, base, _NAMES))
    except OSError as error:
        raise ProgramError(f"{file} cannot be read.", error.strerror or str(error), "--data FILE.ptd") from error
    return [name for name in wanted if len(name.encode()).to_bytes(4, "little") + name.encode() not in data]


def _has(file: Path, wanted: Sequence[str]) -> bool:
    try:
        return not lacks(file, wanted)
    except ProgramError:
        return False


def _count(weights: Sequence[str]) -> str:
    return f"{len(weights)} weight{'s' * (len(weights) != 1)}"


def _list(words: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(words[:6]) + (f" and {len(words) - 6} more" if len(words) > 6 else "")


_PTE_HEADER = 40
"""Bytes of a ``.pte``'s header, as ``runtime/program/program_file.cpp`` reads it."""
_COPY = "a copy or a download was interrupted"
_ANEW = "copy it again, or export it again with --force"


def check_whole(path: Path) -> None:
    """Refuse a truncated program, or a file that is not a program; of others than ``.pte`` the runner says it later.

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
        raise ProgramError(f"{path} is empty.", _COPY, _ANEW)
    if path.suffix.lower() == ".pte":
        with path.open("rb") as file:
            _check_pte(path, file.read(_PTE_HEADER), size)


def _check_pte(path: Path, head: bytes, size: int) -> None:
    if len(head) >= 8 and head[4:6] != b"ET":
        raise ProgramError(
            f"{path} is not a program: its identifier is missing.",
            "another kind of file was named, or it was damaged",
            "name a .pte file, as ./inv export writes it",
        )
    want = _PTE_HEADER
    if len(head) == _PTE_HEADER:
        if head[8:12] != b"eh00":
            return  # of old: the flatbuffer alone, whose size is nowhere
        length, program, base, segments = (
            int.from_bytes(head[at : at + count], "little") for at, count in ((12, 4), (16, 8), (24, 8), (32, 8))
        )
        want = max(program, base + (segments if length >= 32 else 0) if base else 0)
    if want > size:
        raise ProgramError(f"{path} is truncated: {size:,} of {want:,} bytes.", _COPY, _ANEW)
