"""Outputs: the ``.npy`` files that are read, what is refused before NumPy sees it, and how two outputs compare."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import AnswerError, ProgramError
from core.formats.program import Exact, Layers, Tolerance
from deploy.run.compare import Comparison, compare, unreferenced
from deploy.run.npy import BFLOAT16, HEADER, SIZES, load, size_of

PLAIN = [name for name in SIZES if name not in ("bfloat16", "none")]


def saved(tmp_path: Path, value: Any) -> Path:
    np.save(tmp_path / "output0.npy", value)
    return tmp_path / "output0.npy"


@pytest.mark.parametrize("dtype", PLAIN)
def test_what_numpy_writes(tmp_path: Path, dtype: str) -> None:
    noise = np.random.default_rng(1)
    for shape in ((), (0,), (5,), (2, 3), (2, 0, 3), (1, 2, 3, 4)):
        value = noise.integers(0, 2, shape).astype(dtype)
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
    (tmp_path / "a.npy").write_bytes(raw(entries("(2,)", f"'{descr}'"), b"\x80\x3f\x00\x40"))
    name, got = load(tmp_path / "a.npy")
    assert (name, got.tolist(), got.dtype) == ("bfloat16", [0x3F80, 0x4000], np.uint16)


def raw(header: str, body: bytes = bytes(4), magic: bytes = b"\x93NUMPY\x01\x00", length: int | None = None) -> bytes:
    data = header.encode("latin-1")
    return magic + (len(data) if length is None else length).to_bytes(2, "little") + data + body


def entries(shape: str = "(1,)", descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize("data", [
    b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"PK\x03\x04" + bytes(40), raw(entries(), magic=b"\x93NUMPY\x04\x00"),
    raw(entries(), length=60_000), raw(entries("(1000000000000,)")), raw(entries("(True,)")), raw(entries("(-1,)")),
    raw(entries("(1)")), raw(entries("(1.0,)")), raw(entries("(1, , 1)")), raw(entries("1")), raw(entries("[1]")),
    raw(entries("(" + "1, " * 65 + ")")), raw(entries("(" + "9" * 5000 + ",)")), raw(entries("(\xb2,)")),
    raw(entries("(9223372036854775807, 0)"), b"x"), raw(entries("(0,)")), raw(entries("(2,)")), raw(entries("()"), b""),
    raw(entries(descr="'|O'")), raw(entries(descr="'f4,('")), raw(entries(descr="[('a', '<f4')]")),
    raw(entries(descr="'<f3'")), raw(entries(descr="'<V8'")), raw(entries(descr="'<U1'")), raw(entries(descr="'<f16'")),
    raw(entries(descr="'<M8'")), raw(entries(order="0")), raw(entries(order="None")), raw("[]"), raw("{}"), raw("x"),
    raw(entries().replace("}", "'shape': (2,)}")), raw(entries().replace("}", "'x': 1}")), raw("{" + "(" * 3000 + "}"),
    raw(entries() + "; import os"), raw("{'descr': '<f4', 'shape': (1,), }"), raw("{'shape': '<f4', 'descr': (1,), }"),
])  # fmt: skip
def test_what_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "output0.npy"
    file.write_bytes(data)
    with pytest.raises(AnswerError, match=r"output0\.npy") as caught:
        load(file)
    assert len(str(caught.value)) < 400


def test_what_is_no_file_and_how_long_one_may_be(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe"):
        with pytest.raises(AnswerError, match="cannot be read"):
            load(path)
    assert size_of("float32", (2, 3)) == 24 + HEADER
    with pytest.raises(AnswerError, match="NumPy has no dtype"):
        size_of("f4,(", (1,))


LOOSE = Tolerance(atol=0.1, rtol=0.0, why="test")


def check(tmp_path: Path, got: Any, want: Any, tolerance: Tolerance | None = None) -> Comparison:
    for name, value in (("got", got), ("want", want)):
        np.save(tmp_path / f"{name}.npy", np.asarray(value))
    return compare("output0", tmp_path / "got.npy", tmp_path / "want.npy", tolerance)


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_what_is_identical(tmp_path: Path) -> None:
    found = check(tmp_path, f32(1, -0.0, math.nan, math.inf), f32(1, -0.0, math.nan, math.inf))
    assert (found.verdict, found.max_abs, found.different, found.outside) == ("identical", 0.0, 0, 0)
    none = np.ndarray((), "V0")
    assert check(tmp_path, none, none).verdict == "identical"
    found = check(tmp_path, none, np.float32(0))
    assert (found.verdict, found.why) == ("differs", "dtype none, reference float32")
    assert check(tmp_path, np.float32(1), np.float32(1)).shape == ()
    assert check(tmp_path, np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)).verdict == "identical"


def test_atol_counts_by_itself_and_rtol_from_the_reference(tmp_path: Path) -> None:
    within = check(tmp_path, f32(1.05, 2), f32(1, 2), LOOSE)
    assert (within.verdict, within.different, within.outside) == ("agrees", 1, 0)
    assert within.max_abs == pytest.approx(0.05, rel=1e-5)
    assert within.max_rel == pytest.approx(0.05, rel=1e-5)
    outside = check(tmp_path, f32(1.2, 2), f32(1, 2), LOOSE)
    assert (outside.verdict, outside.outside, outside.elements) == ("differs", 1, 2)
    allowed = Tolerance(atol=0, rtol=0.1, why="test")
    assert check(tmp_path, f32(10.9), f32(10), allowed).verdict == "agrees"
    assert check(tmp_path, f32(0.1), f32(0), allowed).verdict == "differs"


def test_many_small_differences_are_no_rounding(tmp_path: Path) -> None:
    allowed = Tolerance(atol=0.1, rtol=0.0, why="test", rms=0.02, gain=0.01)
    want = f32(*([1, -1] * 50))
    few, many, larger = want.copy(), want.copy(), want * np.float32(1.015)
    few[:3] += np.float32(0.09)
    many[::2] += np.float32(0.04)
    assert check(tmp_path, few, want, allowed).verdict == "agrees"
    found = check(tmp_path, many, want, allowed)
    assert (found.verdict, found.outside) == ("differs", 0)
    assert "root mean square of the differences is 0.0283, beyond the 0.02" in found.why
    found = check(tmp_path, larger, want, allowed)
    assert (found.verdict, found.outside) == ("differs", 0)
    assert "1.015 times the reference, beyond rounding's 1 ± 0.01" in found.why
    assert check(tmp_path, larger, want, LOOSE).verdict == "agrees"
    infinite = f32(math.inf, -math.inf, math.nan, 3e38, 1)
    close = infinite.copy()
    close[4] += np.float32(0.01)
    assert check(tmp_path, close, infinite, allowed).verdict == "agrees"


def _patterns(folder: Path) -> tuple[Tolerance, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A tolerance with patterns of two layers over every second element, a reference, and the patterns."""
    random = np.random.default_rng(0)
    want, moves = random.normal(size=2000).astype(np.float32), random.normal(size=(2, 1000))
    scale = np.abs(moves).max(axis=1)
    np.savez(
        folder / "layers0.npz", names=np.array(["first", "second"]), moves=(moves / scale[:, None]).astype(np.float16),
        scale=scale, elements=np.arange(0, 2000, 2, dtype=np.int32), limits=np.array([0.0025, 0.02]),
    )  # fmt: skip
    layers = Layers(file="layers0.npz", count=2, seen=1)
    return Tolerance(atol=0.2, rtol=0.0, why="test", rms=0.05, gain=0.01, layers=layers), want, moves


def test_differences_that_follow_a_layers_pattern_are_no_rounding(tmp_path: Path) -> None:
    allowed, want, moves = _patterns(tmp_path)
    noise = np.random.default_rng(1).normal(size=2000) * 0.02

    def found(first: float, second: float, more: float = 1.0) -> Comparison:
        got = want + noise * more
        got[::2] += first * moves[0] + second * moves[1]
        return check(tmp_path, got.astype(np.float32), want, allowed)

    assert found(0, 0).verdict == "agrees"
    assert found(0.001, 0.01).verdict == "agrees"
    seen = found(0.01, 0)
    assert (seen.verdict, seen.outside) == ("differs", 0)
    # Half of what rounding does to every element: the root mean square alone hides it.
    assert re.fullmatch(
        r"no element is outside 0\.2, but as if first gave 1\.0\d+ times what it should, and rounding does 1 ± 0\.0025",
        seen.why,
    )
    assert found(0, -0.03).why.count("as if second gave 0.97") == 1
    assert found(0.2, 0).outside > 0
    assert found(0.2, 0).why.startswith("as if first gave 1.2")
    assert found(0, 0, more=100).why == "", "elements are outside, and it is no layer's pattern"


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_patterns_that_do_not_fit_are_named(tmp_path: Path, damage: str) -> None:
    allowed, want, _ = _patterns(tmp_path)
    file = tmp_path / "layers0.npz"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:900])
    else:
        want = want[:100]
    with pytest.raises(ProgramError, match=r"layers0\.npz does not fit its program"):
        check(tmp_path, want + np.float32(0.1), want, allowed)


@pytest.mark.parametrize(
    ("got", "want"),
    [((math.nan,), (1,)), ((1,), (math.nan,)), ((math.inf,), (1,)), ((1,), (math.inf,)), ((-math.inf,), (math.inf,))],
)
def test_nan_and_infinity_alone_are_outside_every_tolerance(
    tmp_path: Path, got: tuple[float, ...], want: tuple[float, ...]
) -> None:
    found = check(tmp_path, f32(*got), f32(*want), Tolerance(atol=1e30, rtol=1e30, why="test"))
    assert (found.verdict, found.outside, found.max_abs) == ("differs", 1, math.inf)


def test_nans_of_other_bits_and_zeros_of_other_sign_agree(tmp_path: Path) -> None:
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    found = check(tmp_path, other, f32(math.nan))
    assert (found.verdict, found.different, found.max_abs) == ("agrees", 1, 0.0)
    found = check(tmp_path, f32(0.0), f32(-0.0), Tolerance(atol=0, rtol=0, why="exact"))
    assert (found.verdict, found.different) == ("agrees", 1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "bool"])
def test_integers_are_exact_by_default(tmp_path: Path, dtype: str) -> None:
    assert check(tmp_path, np.array([0, 1], dtype), np.array([0, 1], dtype)).verdict == "identical"
    found = check(tmp_path, np.array([0, 1], dtype), np.array([1, 1], dtype))
    assert (found.verdict, found.max_abs, found.outside) == ("differs", 1.0, 1)


def test_shape_dtype_and_a_reference_that_lacks_are_said(tmp_path: Path) -> None:
    shape = check(tmp_path, np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))
    assert (shape.verdict, shape.why) == ("differs", "shape [2, 3], reference [3, 2]")
    dtype = check(tmp_path, np.zeros(3, np.float32), np.zeros(3, np.float64))
    assert (dtype.verdict, dtype.why) == ("differs", "dtype float32, reference float64")
    np.save(tmp_path / "x.npy", f32(1))
    assert unreferenced("output0", tmp_path / "x.npy").verdict == "no reference"


def test_bfloat16_and_complex_numbers(tmp_path: Path) -> None:
    one, near = np.array([0x3F80], np.uint16).view("V2"), np.array([0x3F81], np.uint16).view("V2")
    found = check(tmp_path, near, one)
    assert (found.dtype, found.verdict, found.max_abs) == (BFLOAT16, "agrees", 0.0078125)
    assert load(tmp_path / "got.npy")[1].tolist() == [0x3F81]
    want = np.linspace(0, 1, 8).astype(np.complex64)
    allowed = Tolerance(atol=0.1, rtol=0.0, why="test", rms=0.01)
    assert check(tmp_path, want + np.complex64(0.005j), want, allowed).verdict == "agrees"
    assert check(tmp_path, want + np.complex64(1e-6j), want).verdict == "agrees", "without a description"
    assert check(tmp_path, want + np.complex64(1e-3j), want).verdict == "differs"
    assert "root mean square" in check(tmp_path, want + np.complex64(0.05j), want, allowed).why


def test_float64_decides_where_it_is_known(tmp_path: Path) -> None:
    """A coarse reference: a result near to float64 is right, one near to neither is wrong; both are told."""
    truth, coarse = np.linspace(1, 2, 8), f32(*np.linspace(1, 2, 8))
    coarse[2] += np.float32(0.5)
    np.save(tmp_path / "exact0.npy", truth)
    exact = Exact(file="exact0.npy", error=0.5, far=True)
    allowed = LOOSE.model_copy(update={"exact": exact, "rms": 0.05})
    found = check(tmp_path, truth.astype(np.float32), coarse, allowed)
    assert (found.verdict, found.right, found.outside, found.why) == ("agrees", True, 0, "")
    assert found.max_abs == pytest.approx(0.5)
    assert found.truth.startswith("this result is nearer to float64: the largest error is ")
    assert check(tmp_path, truth.astype(np.float32), coarse, LOOSE).verdict == "differs"
    wrong = truth.astype(np.float32)
    wrong[5] += np.float32(0.2)
    found = check(tmp_path, wrong, coarse, allowed)
    assert (found.verdict, found.right, found.outside) == ("differs", False, 2)
    assert found.truth == "this result is nearer to float64: the largest error is 0.2 here, 0.5 in the reference"
    wrong[5] += np.float32(0.8)
    assert check(tmp_path, wrong, coarse, allowed).truth.startswith("the reference is nearer to float64")
    # Many small differences from both.
    assert check(tmp_path, (truth + 0.08).astype(np.float32), coarse, allowed).verdict == "differs"
    same = check(tmp_path, coarse, coarse, allowed)
    assert same.verdict == "identical"
    assert same.truth == "the reference is 0.5 away from float64, more than its tolerance"
    bits = (truth.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    far = ((truth + 1).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    coarser = allowed.model_copy(update={"exact": exact.model_copy(update={"error": 1.01})})
    assert check(tmp_path, bits.view("V2"), far.view("V2"), coarser).right
    # A reference that is farther away than the export's was is somebody else's, who may want other numbers.
    other = coarse + np.float32(0.1)
    assert check(tmp_path, truth.astype(np.float32), other, allowed).verdict == "differs"
    (tmp_path / "exact0.npy").unlink()
    with pytest.raises(ProgramError, match=r"exact0\.npy is missing"):
        check(tmp_path, wrong, coarse, allowed)
