"""Weights stored apart from their program: which file is taken, and what is refused before anything is uploaded."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.errors import ProgramError
from deploy.run.program_files import find, names


def ptd(weights: Sequence[str]) -> bytes:
    """A ``.ptd`` file of these weights, four bytes each, put together by the format's description."""
    items = b""
    begin = 64 + 16
    vector = begin + 12
    at = vector + 4 + 4 * len(weights)
    places = []
    for name in weights:
        text = name.encode()
        # a vtable of one field, the table, then the key
        items += struct.pack("<HHHH", 6, 8, 4, 0) + struct.pack("<iI", 8, 4) + struct.pack("<I", len(text)) + text
        places.append(at + len(items) - len(text) - 12)
        items += b"\0" * (-len(items) % 4)
    root = struct.pack("<HHHHHxx", 10, 12, 0, 4, 8)[:12].ljust(16, b"\0")
    segments = at + len(items)
    table = struct.pack("<iII", 16, segments - (begin + 4), vector - (begin + 8))
    offsets = b"".join(struct.pack("<I", place - (vector + 4 + 4 * i)) for i, place in enumerate(places))
    one = struct.pack("<II", 1, 8 + 4) + struct.pack("<HHHH", 8, 20, 4, 12)
    segment = one[:16] + struct.pack("<iQQ", 8, 0, 4 * len(weights))
    body = root + table + struct.pack("<I", len(weights)) + offsets + items + segment
    length = len(body) + 16
    base = 64 + len(body)
    head = struct.pack("<I", begin) + b"FT01FH01" + struct.pack("<IQQQQ", 40, 48, length, base, 4 * len(weights))
    return head.ljust(64, b"\0") + body + b"\1" * 4 * len(weights)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "net.pte"
    file.write_bytes(b"")
    return file


def test_the_file_of_the_programs_name_is_read_and_taken(program: Path) -> None:
    file = program.with_suffix(".ptd")
    file.write_bytes(ptd(["a.weight", "bias"]))
    assert names(file) == {"a.weight", "bias"}
    own = program.with_suffix(".ptd")
    own.write_bytes(ptd(["a", "b"]))
    (program.parent / "other.ptd").write_bytes(ptd(["a"]))
    assert find(program, ["a"], None) == own
    assert find(program, [], None) == own  # a delegate may need it


def test_so_is_the_only_one_that_has_the_weights(program: Path) -> None:
    (program.parent / "one.ptd").write_bytes(ptd(["a", "b"]))
    (program.parent / "two.ptd").write_bytes(ptd(["a"]))
    (program.parent / "three.ptd").write_bytes(b"nothing")
    assert find(program, ["a", "b"], None) == program.parent / "one.ptd"
    assert find(program, [], None) is None
    with pytest.raises(ProgramError, match=r"several have them: one\.ptd, two\.ptd"):
        find(program, ["a"], None)
    assert find(program, ["a"], program.parent / "two.ptd") == program.parent / "two.ptd"


def test_a_program_without_its_weights_is_refused(program: Path) -> None:
    with pytest.raises(ProgramError, match=r"2 weights stored apart from it: a, b\.") as caught:
        find(program, ["a", "b"], None)
    assert "no net.ptd beside it" in caught.value.cause
    assert "--data" in caught.value.hint
    (program.parent / "other.ptd").write_bytes(ptd(["a"]))
    with pytest.raises(ProgramError, match="no other file has them"):
        find(program, ["a", "b"], None)
    file = program.with_suffix(".ptd")
    file.write_bytes(ptd(["a"]))
    with pytest.raises(ProgramError, match=r"lacks 1 weight that .* needs: b\."):
        find(program, ["a", "b"], None)
    with pytest.raises(ProgramError, match="cannot be read"):
        find(program, ["a"], program.parent / "nowhere.ptd")


def test_what_is_damaged_is_refused_with_words(program: Path) -> None:
    file = program.with_suffix(".ptd")
    whole = ptd(["a", "b"])
    file.write_bytes(whole[:-1])
    with pytest.raises(ProgramError, match="truncated"):
        names(file)
    file.write_bytes(b"PK\3\4" + whole[4:4] + bytes(80))
    with pytest.raises(ProgramError, match="not a file of weights"):
        names(file)
    refused = 0
    for at in range(len(whole) - 8):
        for mask in (0x01, 0xFF):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
            try:
                names(file)
            except ProgramError as error:
                refused += 1
                assert error.hint
    assert refused > len(whole) / 2
