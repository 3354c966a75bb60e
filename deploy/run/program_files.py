"""Weights of a ``.pte`` that are stored apart from it, in a ``.ptd`` file: found, read, and compared with its needs.

Format: ``flat_tensor.fbs`` and ``flat_tensor_header.h`` of ExecuTorch's SDK. Of the file, only the names are read; the
runner checks the rest before it uses it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from core.errors import ProgramError

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
