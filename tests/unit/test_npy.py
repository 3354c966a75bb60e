"""``.npy`` files from a device: what NumPy and the runner write is read, all else is refused before NumPy sees it."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import AnswerError
from deploy.run.npy import HEADER, SIZES, load, size_of

PLAIN = [name for name in SIZES if name not in ("bfloat16", "none")]


def saved(tmp_path: Path, value: Any, **how: Any) -> Path:
    file = tmp_path / "output0.npy"
    np.save(file, value, **how)
    return file


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3), (1, 2, 3, 4)])
def test_what_numpy_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    noise = np.random.default_rng(1)
    value = noise.integers(0, 2, shape).astype(dtype)
    assert load(saved(tmp_path, value))[0] == dtype
    for each in (value, value.copy(order="F"), value.astype(value.dtype.newbyteorder(">"))):
        name, got = load(saved(tmp_path, each))
        assert (name, got.shape) == (dtype, shape)
        assert np.array_equal(got, value)
        assert got.flags["C_CONTIGUOUS"]
        assert got.dtype == np.dtype(dtype).newbyteorder("<")


def test_none_is_a_scalar_of_no_bytes(tmp_path: Path) -> None:
    name, got = load(saved(tmp_path, np.ndarray((), "V0")))
    assert (name, got.shape, got.tobytes()) == ("none", (), b"")
    with pytest.raises(AnswerError, match="not a shape"):
        load(saved(tmp_path, np.ndarray((3,), "V0")))


@pytest.mark.parametrize("descr", ["<V2", "|V2"])
def test_bfloat16_stays_as_its_bits(tmp_path: Path, descr: str) -> None:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}".encode().ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x80\x3f\x00\x40"
    )
    name, got = load(tmp_path / "a.npy")
    assert (name, got.tolist(), got.dtype) == ("bfloat16", [0x3F80, 0x4000], np.uint16)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(3), version=version)
    assert load(tmp_path / "a.npy")[1].tolist() == [0, 1, 2]


def raw(header: str, body: bytes = bytes(4), magic: bytes = b"\x93NUMPY\x01\x00", length: int | None = None) -> bytes:
    data = header.encode("latin-1")
    return magic + (len(data) if length is None else length).to_bytes(2, "little") + data + body


def entries(shape: str = "(1,)", descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"PK\x03\x04" + bytes(40), raw(entries(), magic=b"\x93NUMPY\x04\x00"),
        raw(entries(), length=60_000), raw(entries("(1000000000000,)")), raw(entries("(True,)")), raw(entries("(-1,)")),
        raw(entries("(1)")), raw(entries("(1.0,)")), raw(entries("(1, , 1)")), raw(entries("1")), raw(entries("[1]")),
        raw(entries("(" + "1, " * 65 + ")")), raw(entries("(" + "9" * 5000 + ",)")), raw(entries("(\xb2,)")),
        raw(entries("(9223372036854775807, 0)"), b"x"), raw(entries("(0,)")), raw(entries("(2,)")), raw(entries("()"),
        b""),
        raw(entries(descr="'|O'")), raw(entries(descr="'f4,('")), raw(entries(descr="[('a', '<f4')]")),
        raw(entries(descr="'<f3'")), raw(entries(descr="'<V8'")), raw(entries(descr="'<U1'")),
        raw(entries(descr="'<f16'")),
        raw(entries(descr="'<M8'")), raw(entries(order="0")), raw(entries(order="None")), raw("[]"), raw("{}"),
        raw("x"),
        raw(entries().replace("}", "'shape': (2,)}")), raw(entries().replace("}", "'x': 1}")),
        raw("{" + "(" * 3000 + "}"),
        raw(entries() + "; import os"), raw("{'descr': '<f4', 'shape': (1,), }"),
        raw("{'shape': '<f4', 'descr': (1,), }"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "output0.npy"
    file.write_bytes(data)
    with pytest.raises(AnswerError, match=r"output0\.npy") as caught:
        load(file)
    assert len(str(caught.value)) < 400


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe"):
        with pytest.raises(AnswerError, match="cannot be read"):
            load(path)


def test_torn_and_mixed(tmp_path: Path) -> None:
    """Random damage to header and elements: our own error, or an array that is as long as the file."""
    noise = random.Random(7)  # noqa: S311 - the same damage every time
    memory = io.BytesIO()
    np.save(memory, np.arange(6, dtype=np.float32).reshape(2, 3))
    good = memory.getvalue()
    file = tmp_path / "a.npy"
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(noise.randint(1, 3)):
            at = noise.randrange(min(len(data), 90)) if data else 0
            if noise.random() < 0.5 and data:
                data[at] = noise.randrange(256)
            elif noise.random() < 0.5:
                del data[at : at + noise.randint(1, 9)]
            else:
                data[at:at] = noise.choice([b"(", b"True", b"-", b"9" * 30, b"'", b"}", b"|O", b"\x00"])
        file.write_bytes(data)
        try:
            _name, array = load(file)
        except AnswerError:
            continue
        assert array.nbytes <= len(data)


def test_how_long_a_file_may_be() -> None:
    assert size_of("float32", (2, 3)) == 24 + HEADER
    with pytest.raises(AnswerError, match="NumPy has no dtype"):
        size_of("f4,(", (1,))
