"""Programs, methods, pools and texts over the C API."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from slipway_runtime import _native
from slipway_runtime._native import Error, InputError, api, must, text

Array = np.ndarray[Any, np.dtype[Any]]

_UNKNOWN = 0
_NONE = 14
_NUMBERS = {text(api.slipway_dtype_name(number)): number for number in range(1, 17) if number != _NONE}
_BFLOAT16 = _NUMBERS["bfloat16"]
_DTYPES = {number: np.dtype("V2" if number == _BFLOAT16 else name) for name, number in _NUMBERS.items()}
"""bfloat16, which NumPy lacks: two bytes that NumPy does not interpret."""


def version() -> str:
    """The library's version."""
    return text(api.slipway_version())


@dataclass(frozen=True)
class Spec:
    """What a method declares of an input or output."""

    kind: str
    """``tensor``, ``number`` (an array without dimensions) or ``other``."""
    dtype: str
    """NumPy's name, ``bfloat16``, ``none`` (of ``None``) or ``unknown``."""
    shape: tuple[int, ...]
    """In elements; the largest sizes for ``bounded``."""
    dynamism: str
    """``static``, ``bounded`` (each size may be smaller) or ``unbounded``."""


class Pool:
    """Threads that programs may share.

    Args:
        threads: how many compute, the caller's own among them; 0: one for each physical core.

    Raises:
        Error: the threads cannot be started. ValueError: not a number of them.
    """

    def __init__(self, threads: int = 0) -> None:
        self._handle = ctypes.c_void_p()
        must(api.slipway_pool_create(_count(threads, "threads"), byref(self._handle)))
        weakref.finalize(self, api.slipway_pool_free, self._handle)

    @property
    def threads(self) -> int:
        """How many compute."""
        return int(api.slipway_pool_threads(self._handle))


class Method:
    """One method of a program."""

    def __init__(self, program: Program, handle: int) -> None:
        self._program = program
        self._handle = handle
        self.name = text(api.slipway_method_name(handle))
        self.inputs = self._specs(api.slipway_method_input_count, api.slipway_method_input_spec)
        self.outputs = self._specs(api.slipway_method_output_count, api.slipway_method_output_spec)

    def _specs(self, count: Any, get: Any) -> tuple[Spec, ...]:
        found: list[Spec] = []
        for index in range(count(self._handle)):
            spec = _native.Spec()
            must(get(self._handle, index, byref(spec)))
            kind, dynamism = _native.KINDS[spec.kind], _native.DYNAMISMS[spec.dynamism]
            name = text(api.slipway_dtype_name(spec.dtype))
            found.append(Spec(kind, name, tuple(spec.sizes[: spec.rank]), dynamism))
        return tuple(found)

    def forward(self, *inputs: Any, copy: bool = False) -> list[Array]:
        """Run the method once.

        Args:
            inputs: arrays, or what NumPy makes arrays of, such as tensors of PyTorch and lists of numbers. Arrays
                keep their type; C-contiguous ones in the processor's byte order are not copied. ``None`` where the
                program was exported with it.
            copy: give outputs memory of their own, so that they stay valid.

        Returns:
            The outputs; read-only views of the program's memory, valid until its next execution, without ``copy``.
            ``None`` in place of an output that is none.

        Raises:
            InputError: an input has another type or shape than the method takes, or masked elements, or no numbers.
            Error: the execution failed.
        """
        arrays = [self._array(index, value) for index, value in enumerate(inputs)]
        tensors = (_native.Tensor * len(arrays))(*map(_tensor, arrays))
        must(api.slipway_method_forward(self._handle, tensors, len(arrays)))
        outputs = [self._output(index) for index in range(len(self.outputs))]
        return [one if one is None else np.array(one) for one in outputs] if copy else outputs

    def input_copied(self, index: int) -> bool:
        """Whether the library had to copy this input in the last execution."""
        return bool(api.slipway_method_input_copied(self._handle, index))

    def _array(self, index: int, value: Any) -> Array | None:
        wanted = self.inputs[index].dtype if index < len(self.inputs) else ""
        if value is None and wanted == "none":
            return None
        try:
            return _array(value, wanted)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            fix = "an array of the type that Method.inputs names"
            raise InputError(_native.INPUT, f"Input {index} of {self.name} cannot be read: {error}", fix) from error

    def _output(self, index: int) -> Any:
        tensor = _native.Tensor()
        must(api.slipway_method_output(self._handle, index, byref(tensor)))
        if tensor.dtype == _NONE:
            return None
        dtype, shape = _DTYPES[tensor.dtype], tuple(tensor.sizes[: tensor.rank])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if not size:
            return np.empty(shape, dtype)
        memory = (ctypes.c_char * size).from_address(tensor.data)
        memory._program = self._program  # type: ignore[attr-defined]  # it lives as long as the array
        array: Array = np.frombuffer(memory, dtype).reshape(shape)
        array.flags.writeable = False
        return array


def _array(value: Any, wanted: str) -> Array:
    """The numbers of an input, row-major and in the processor's byte order; not copied if they are so already.

    Arrays keep their type, and the library refuses another one than it takes. What is made an array of here gets the
    type ``wanted``.

    Raises:
        TypeError, ValueError: it holds no numbers, or not all of them, or others than the type has.
    """
    if type(value) is not np.ndarray and np.ma.is_masked(value):  # type: ignore[no-untyped-call,unused-ignore]
        raise ValueError("elements of it are masked")
    array = np.asarray(value)  # without sub-classes, which compute in other ways
    if _number(array.dtype) == _UNKNOWN:
        raise TypeError(f"its elements are {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    dtype = _DTYPES.get(_NUMBERS.get(wanted, _UNKNOWN), array.dtype)
    if not isinstance(value, np.ndarray) and array.dtype != dtype:
        array = _converted(array, dtype, wanted)
    return np.require(array, requirements=["C", "A"])


def _converted(array: Array, dtype: np.dtype[Any], wanted: str) -> Array:
    if dtype.kind == "V":
        raise TypeError("bfloat16 is given as an array of the type V2")
    if dtype.kind not in "biu":
        return array.astype(dtype, casting="same_kind")
    with np.errstate(invalid="ignore"):
        found = array.astype(dtype)
    if not np.array_equal(found, array):
        raise ValueError(f"not all of its numbers are of {wanted}")
    return found


def _number(dtype: np.dtype[Any]) -> int:
    """The library's number for a type."""
    return _BFLOAT16 if dtype == _DTYPES[_BFLOAT16] else _NUMBERS.get(dtype.name, _UNKNOWN)


def _tensor(array: Array | None) -> _native.Tensor:
    if array is None:
        return _native.Tensor(dtype=_NONE)
    sizes = (ctypes.c_int64 * _native.MAX_DIMS)(*array.shape[: _native.MAX_DIMS])
    return _native.Tensor(array.ctypes.data, 0, _number(array.dtype), array.ndim, sizes)


def _path(path: str | bytes | os.PathLike[Any]) -> bytes:
    """A path or a name for the library, for which a text ends at a zero.

    Raises:
        ValueError: it has one.
    """
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"{path!r} has a null character in it")
    return encoded


def _count(value: int, what: str) -> int:
    """A number that the library keeps in 32 bits; ctypes would cut off the rest.

    Raises:
        ValueError: it is negative or larger.
    """
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{what} is {value}, not a number from 0 to {(1 << 32) - 1}")
    return value


class Program:
    """A program that is loaded; `load` makes one."""

    def __init__(self, handle: ctypes.c_void_p, keep: object) -> None:
        self._handle = handle
        self._keep = keep
        weakref.finalize(self, api.slipway_program_free, handle)
        count = api.slipway_program_method_count(handle)
        found = [Method(weakref.proxy(self), api.slipway_program_method_at(handle, index)) for index in range(count)]
        self._methods = {method.name: method for method in found}
        for method in found:
            method._program = self

    @property
    def methods(self) -> dict[str, Method]:
        """The methods that are ready, by name."""
        return dict(self._methods)

    def forward(self, *inputs: Any, copy: bool = False) -> list[Array]:
        """Run the method ``forward``; arguments, result and errors as `Method.forward`."""
        return self.execute("forward", *inputs, copy=copy)

    def execute(self, name: str, *inputs: Any, copy: bool = False) -> list[Array]:
        """Run a method by its name.

        Raises:
            Error: the method is not ready or does not exist. The others: as `Method.forward`.
        """
        if name not in self._methods:
            raise Error(2, f"Method {name} is not ready.", f"one of: {', '.join(self._methods)}")
        return self._methods[name].forward(*inputs, copy=copy)

    def keep_weights(self) -> None:
        """Write packed weights to the file that ``weights_cache`` named.

        Raises:
            Error: `load` got no `weights_cache`, or the file cannot be written.
        """
        must(api.slipway_program_keep_weights(self._handle))


def load(
    program: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    data_path: str | os.PathLike[str] | None = None,
    weights_cache: str | os.PathLike[str] | None = None,
    methods: Sequence[str] = (),
    pool: Pool | None = None,
    max_jumps: int = 0,
) -> Program:
    """Load a program.

    Args:
        program: a file's path, or the bytes of one.
        data_path: a file of weights (``.ptd``) that was exported with the program.
        weights_cache: a file that keeps packed weights for the next load.
        methods: which to make ready; all if empty.
        pool: threads that compute; by default the program's own pool, with one for each physical core.
        max_jumps: rounds of loops in one execution; 0: ten million.

    Raises:
        Error: the file is missing or damaged, or needs something that the library lacks.
        ValueError: a path or a name with a null character in it, or a negative number.
    """
    options, handle = api.slipway_options_create(), ctypes.c_void_p()
    try:
        must(api.slipway_options_set_max_jumps(options, _count(max_jumps, "max_jumps")))
        if pool is not None:
            must(api.slipway_options_set_pool(options, pool._handle))
        if data_path is not None:
            must(api.slipway_options_set_data_path(options, _path(data_path)))
        if weights_cache is not None:
            must(api.slipway_options_set_weights_cache(options, _path(weights_cache)))
        for name in methods:
            must(api.slipway_options_add_method(options, _path(name)))
        if isinstance(program, (bytes, bytearray, memoryview)):
            memory = np.frombuffer(program, np.uint8)
            must(api.slipway_program_load_memory(memory.ctypes.data, memory.size, options, byref(handle)))
            return Program(handle, memory)
        must(api.slipway_program_load(_path(program), options, byref(handle)))
    finally:
        api.slipway_options_free(options)
    return Program(handle, None)


@final
class Session:
    """A text that a program reads and writes, token by token: one at a time for each loaded program.

    Args:
        program: whose method takes tokens and their position, and gives logits, as export_llm and optimum-executorch
            write it.
        method: which; by default ``forward``, or ``text_decoder`` with ``token_embedding`` beside it.

    Raises:
        Error: the method is not ready or reads no tokens, or the program has a session that was not closed.
    """

    def __init__(self, program: Program, method: str | None = None) -> None:
        handle, name = ctypes.c_void_p(), None if method is None else _path(method)
        must(api.slipway_session_create(program._handle, name, byref(handle)))
        # It keeps the program for as long.
        self._end = weakref.finalize(self, _end, handle, program)

    @property
    def _handle(self) -> ctypes.c_void_p:
        alive = self._end.peek()
        if alive is None:
            raise Error(2, "The session was closed.", "begin another one: Session(program)")
        handle: ctypes.c_void_p = alive[2][0]
        return handle

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, so that the program may have another one."""
        self._end()

    def feed(self, ids: Sequence[int] | Array) -> None:
        """Let the model read tokens; `logits` are then those of the token that follows.

        Raises:
            InputError: there is none, one is not a number of the vocabulary, or not all fit into the context; nothing
                is read then. Error: the execution failed; `position` says how many were read.
        """
        numbers = np.asarray(ids)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InputError(_native.INPUT, "Tokens are one row of whole numbers.", "session.feed([1, 2, 3])")
        numbers = np.require(numbers, np.int64, ["C", "A"])
        must(api.slipway_session_feed(self._handle, numbers.ctypes.data, numbers.size))

    def feed_embeddings(self, rows: Array) -> None:
        """Let the model read embeddings in the place of tokens, float32 ``[n, width]``; errors as `feed`.

        Raises:
            Error: the model reads tokens alone.
        """
        numbers = np.require(rows, np.float32, ["C", "A"])
        if self.width and (numbers.ndim != 2 or numbers.shape[1] != self.width):
            raise InputError(_native.INPUT, f"Embeddings are rows of {self.width} numbers.", "rows.reshape(n, width)")
        must(api.slipway_session_feed_embeddings(self._handle, numbers.ctypes.data, len(numbers)))

    @property
    def width(self) -> int:
        """The numbers of an embedding; 0 when the model reads tokens alone."""
        return int(api.slipway_session_width(self._handle))

    @property
    def logits(self) -> Array | None:
        """A copy of the next token's scores, float32 ``[vocabulary]``; none before the first feed."""
        count = ctypes.c_size_t()
        data = api.slipway_session_logits(self._handle, byref(count))
        return np.ctypeslib.as_array(data, (count.value,)).copy() if data else None

    def set_sampling(self, temperature: float = 0, top_k: int = 0, top_p: float = 1, seed: int = 0) -> None:
        """Choose how `sample` chooses, from now on.

        Args:
            temperature: 0: the likeliest token, always.
            top_k: of the likeliest tokens only so many; 0: all.
            top_p: only the likeliest tokens whose probabilities together reach it; 1: all.
            seed: the same one gives the same text.

        Raises:
            Error, ValueError: a number is out of its range.
        """
        must(api.slipway_session_set_sampling(self._handle, temperature, _count(top_k, "top_k"), top_p, seed))

    def sample(self) -> int:
        """Choose the next token. To go on, `feed` it.

        Raises:
            Error: nothing was read, or the model's logits are not numbers.
        """
        found = ctypes.c_int64()
        must(api.slipway_session_sample(self._handle, byref(found)))
        return found.value

    @property
    def stops(self) -> tuple[int, ...]:
        """The tokens that end a text, as the program names them."""
        count = ctypes.c_size_t()
        data = api.slipway_session_stops(self._handle, byref(count))
        return tuple(data[: count.value]) if data else ()

    @property
    def position(self) -> int:
        """How many tokens were read."""
        return int(api.slipway_session_position(self._handle))

    @property
    def context(self) -> int:
        """How many tokens a text has at most; 0: the program does not say."""
        return int(api.slipway_session_context(self._handle))

    def truncate(self, position: int) -> None:
        """Forget what was read after the first ``position`` tokens.

        Raises:
            Error: fewer were read.
        """
        must(api.slipway_session_truncate(self._handle, position))

    def reset(self) -> None:
        """Begin another text."""
        self.truncate(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text to a file: what the model remembers, the position and the logits.

        Raises:
            Error: it cannot be written.
        """
        must(api.slipway_session_save(self._handle, _path(path)))

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        must(api.slipway_session_save_memory(self._handle, byref(data), byref(size)))
        return ctypes.string_at(data.value or 0, size.value)

    def restore(self, saved: str | os.PathLike[str] | bytes) -> None:
        """Go on with a text that the same method of the same program saved: a file's path, or its bytes.

        Raises:
            InputError: it is another program's. Error: it cannot be read or is damaged. The session stays as it is.
        """
        if isinstance(saved, bytes):
            must(api.slipway_session_restore_memory(self._handle, saved, len(saved)))
        else:
            must(api.slipway_session_restore(self._handle, _path(saved)))


def _end(handle: ctypes.c_void_p, _program: Program) -> None:
    api.slipway_session_free(handle)
