"""What slipway_runtime hands to the library: the numbers that were given, or an error. The library is played here."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from core.paths import ROOT

NAMES = ["unknown", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool", "bfloat16",
         "uint16", "uint32", "uint64", "none", "complex64", "complex128"]  # fmt: skip
X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Library:
    """One method with one input of ``dtype``; it keeps what it reads where a tensor says that it is."""

    def __init__(self) -> None:
        self.dtype = "float32"
        self.texts: list[bytes] = []
        self.counts: list[int] = []
        self.read: Any = None
        one, text, number = (lambda _: 1), (lambda _, given: self.texts.append(given)), self.counts.append
        self.functions: dict[str, Callable[..., Any]] = {
            "abi_version": lambda: 1, "program_method_count": one, "method_input_count": one,
            "method_output_count": lambda _: 0, "method_name": lambda _: b"forward",
            "dtype_name": lambda number: NAMES[number].encode(), "method_input_spec": self.spec,
            "options_add_method": text, "options_set_data_path": text, "options_set_weights_cache": text,
            "program_load": lambda path, *_: self.texts.append(path), "pool_create": lambda threads, _: number(threads),
            "options_set_max_jumps": lambda _, jumps: number(jumps), "method_forward": self.forward,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        # ctypes' functions have attributes
        return functools.partial(self.functions.get(name.removeprefix("slipway_"), lambda *_: None))

    def spec(self, _method: object, _index: int, spec: Any) -> None:
        spec._obj.kind, spec._obj.dtype = 1, NAMES.index(self.dtype)

    def forward(self, _method: object, tensors: Any, _count: int) -> None:
        one = tensors[0]
        if NAMES[one.dtype] == "none":
            assert (one.data, one.rank) == (None, 0)
            self.read = "none"
            return
        assert one.data % 8 == 0 or NAMES[one.dtype] != "float64"
        dtype, shape = np.dtype(NAMES[one.dtype].replace("bfloat16", "V2")), tuple(one.sizes[: one.rank])
        size = dtype.itemsize * int(np.prod(shape))
        memory = (ctypes.c_char * size).from_address(one.data)
        self.read = np.frombuffer(bytes(memory), dtype).reshape(shape)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    one = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: one)
    return one


@pytest.fixture
def package(library: Library, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT / "runtime/bindings/python")
    assert library.read is None
    yield importlib.import_module("slipway_runtime")
    for name in [name for name in sys.modules if name.partition(".")[0] == "slipway_runtime"]:
        del sys.modules[name]


def read(package: Any, library: Library, value: Any, dtype: str = "float32") -> Any:
    """What the library reads of an input, of a method that takes ``dtype``."""
    library.dtype = dtype
    package.load("net.pte").forward(value)
    return library.read


FORMS: dict[str, Any] = {
    "plain": X,
    "foreign byte order": X.astype(X.dtype.newbyteorder("S")),
    "turned": np.asfortranarray(X),
    "a part": np.arange(48, dtype=np.float32).reshape(6, 8)[::2, ::2],
    "backwards": X[::-1, ::-1],
    "repeated": np.broadcast_to(X[:1], (3, 4)),
    "sub-class": X.view(type("Own", (np.ndarray,), {})),
    "nothing masked": np.ma.MaskedArray(X, mask=np.zeros_like(X, bool)),
    "without dimensions": np.float32(2.5).reshape(()),
    "empty": X[:0],
    "not aligned": np.frombuffer(b"0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4),
    "a field": np.zeros(3, [("a", "i1"), ("b", "f4")])["b"],
    "numbers": [[1, 2.5], [3, 4]],
    "a number": 3,
    "NumPy's number": np.float64(0.5),
    "bytes' view": memoryview(X),  # type: ignore[arg-type,unused-ignore]
}


@pytest.mark.parametrize("form", FORMS)
def test_the_library_reads_the_numbers_that_were_given(package: Any, library: Library, form: str) -> None:
    value = FORMS[form]
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    found = read(package, library, value)
    assert (found.dtype, found.shape) == (np.float32, np.shape(value))
    assert found.tobytes() == np.array(value, np.float32, order="C").tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16", "float64", "bfloat16", "uint16", "complex64"])
def test_an_array_keeps_its_type(package: Any, library: Library, dtype: str) -> None:
    # The library compares it with the type that the method takes.
    value = np.ones(3, dtype.replace("bfloat16", "V2"))
    found = read(package, library, value)
    assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())
    swapped = value.astype(value.dtype.newbyteorder("S"))
    assert read(package, library, swapped).tobytes() == value.tobytes()


@pytest.mark.parametrize(("value", "dtype", "words"), [
    (np.ma.MaskedArray(X, mask=X > 3), "float32", "masked"), (np.ma.masked, "float32", "masked"),
    (X.astype(object), "float32", "object"), (None, "float32", "object"), ([1.0, None], "float32", "object"),
    ([[1.0], [1.0, 2.0]], "float32", "inhomogeneous"), (np.zeros(3, [("a", "f4"), ("b", "f4")]), "float32", "'a'"),
    (np.array(["1", "2"]), "float32", "<U1"), (["1", "2"], "float32", "<U1"), (b"12", "float32", "S2"),
    (np.array(["2026-01-01"], "M8[D]"), "int64", "datetime64"), ([None], "none", "object"),
    ([1 + 2j], "float32", "complex"), ([1.5], "int64", "not all of its numbers are of int64"),
    ([float("nan")], "int64", "not all of its numbers are of int64"),
    ([300], "uint8", "not all of its numbers are of uint8"), ([-1], "uint16", "not all of its numbers are of uint16"),
    ([2], "bool", "not all of its numbers are of bool"), ([1 << 70], "int64", "object"), ([1.0], "bfloat16", "V2"),
])  # fmt: skip
def test_what_holds_other_things_is_refused(package: Any, library: Library, value: Any, dtype: str, words: str) -> None:
    with pytest.raises(package.InputError, match="Input 0 of forward cannot be read: ") as caught:
        read(package, library, value, dtype)
    assert words in str(caught.value)
    assert library.read is None


def test_none_is_given_and_an_array_is_not_copied(package: Any, library: Library) -> None:
    assert read(package, library, None, "none") == "none"
    assert read(package, library, X, "none").tobytes() == X.tobytes(), "which the library refuses"
    assert np.shares_memory(sys.modules["slipway_runtime._api"]._array(X, "float32"), X)
    assert read(package, library, X).tobytes() == X.tobytes()


@pytest.mark.parametrize("option", ["program", "data_path", "weights_cache", "methods"])
def test_a_null_character_is_refused(package: Any, library: Library, option: str) -> None:
    def load(text: Any) -> None:
        words: dict[str, Any] = {"program": "net.pte", option: [text] if option == "methods" else text}
        package.load(**words)

    with pytest.raises(ValueError, match="null character"):
        load("a\0b")
    load("ab")
    assert b"ab" in library.texts
    assert b"a" not in library.texts


@pytest.mark.parametrize("number", [-1, 1 << 32, (1 << 32) + 1])
def test_a_number_that_does_not_fit_is_refused(package: Any, library: Library, number: int) -> None:
    with pytest.raises(ValueError, match="threads is"):
        package.Pool(number)
    with pytest.raises(ValueError, match="max_jumps is"):
        package.load("net.pte", max_jumps=number)
    package.Pool(2)
    package.load("net.pte", max_jumps=3)
    assert library.counts == [2, 3]
