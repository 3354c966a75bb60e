"""Run a model once through the C API: ``run_once.py libslipway.so.1 model.pte in.npy out.npy``.

Inputs and outputs are NumPy arrays over the memory that the library reads and writes: nothing is copied.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

DIMS = 16
"""SLIPWAY_MAX_DIMS."""


class Tensor(ctypes.Structure):
    """``slipway_tensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("readable", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("sizes", ctypes.c_int64 * DIMS),
    )


def main(library: str, model: str, source: str, target: str) -> None:
    """Run ``forward`` of a program with one input and one output."""
    api = ctypes.CDLL(library)
    api.slipway_dtype_name.restype = ctypes.c_char_p
    api.slipway_error_message.restype = ctypes.c_char_p
    api.slipway_error_message.argtypes = [ctypes.c_void_p]

    def must(name: str, *words: object) -> None:
        function = getattr(api, name)
        function.restype = ctypes.c_void_p
        if error := function(*words):
            sys.exit(api.slipway_error_message(error).decode())

    program, method = ctypes.c_void_p(), ctypes.c_void_p()
    must("slipway_program_load", model.encode(), None, ctypes.byref(program))
    must("slipway_program_find_method", program, b"forward", ctypes.byref(method))
    array = np.ascontiguousarray(np.load(source))
    numbers = {api.slipway_dtype_name(number).decode(): number for number in range(1, 14)}
    given = Tensor(array.ctypes.data, 0, numbers[array.dtype.name], array.ndim, (ctypes.c_int64 * DIMS)(*array.shape))
    must("slipway_method_forward", method, ctypes.byref(given), ctypes.c_size_t(1))
    found = Tensor()
    must("slipway_method_output", method, ctypes.c_size_t(0), ctypes.byref(found))
    shape = tuple(found.sizes[: found.rank])
    dtype = np.dtype(api.slipway_dtype_name(found.dtype).decode())
    size = dtype.itemsize * int(np.prod(shape))
    memory = (ctypes.c_char * size).from_address(found.data or 0)
    np.save(target, np.frombuffer(memory, dtype).reshape(shape))
    api.slipway_program_free(program)


if __name__ == "__main__":
    main(*sys.argv[1:])
