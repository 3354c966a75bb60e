"""The C API of ``slipway.h``, by ctypes: the names and numbers are the header's."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

ABI_VERSION = 1
MAX_DIMS = 16
INPUT = 6
"""The code of errors about inputs."""

KINDS = ("other", "tensor", "number")
DYNAMISMS = ("static", "bounded", "unbounded")


class Tensor(ctypes.Structure):
    """``slipway_tensor``."""

    _fields_ = (
        ("data", c_void_p),
        ("readable", c_uint64),
        ("dtype", c_int32),
        ("rank", c_uint32),
        ("sizes", c_int64 * MAX_DIMS),
    )


class Spec(ctypes.Structure):
    """``slipway_spec``."""

    _fields_ = (
        ("kind", c_int32),
        ("dtype", c_int32),
        ("dynamism", c_int32),
        ("rank", c_uint32),
        ("sizes", c_int64 * MAX_DIMS),
    )


class Error(RuntimeError):
    """Something failed: ``message`` says what happened, ``fix`` what to do, ``code`` which class it is of."""

    def __init__(self, code: int, message: str, fix: str) -> None:
        super().__init__(f"{message} Try: {fix}" if fix else message)
        self.code = code
        self.message = message
        self.fix = fix


class InputError(Error, ValueError):
    """An input has another type or shape than the method takes."""


_FALLIBLE: dict[str, list[object]] = {
    "pool_create": [c_uint32, POINTER(c_void_p)],
    "options_set_pool": [c_void_p, c_void_p],
    "options_set_data_path": [c_void_p, c_char_p],
    "options_set_weights_cache": [c_void_p, c_char_p],
    "options_add_method": [c_void_p, c_char_p],
    "options_set_max_jumps": [c_void_p, c_uint32],
    "program_load": [c_char_p, c_void_p, POINTER(c_void_p)],
    "program_load_memory": [c_void_p, c_size_t, c_void_p, POINTER(c_void_p)],
    "program_keep_weights": [c_void_p],
    "method_input_spec": [c_void_p, c_size_t, POINTER(Spec)],
    "method_output_spec": [c_void_p, c_size_t, POINTER(Spec)],
    "method_forward": [c_void_p, POINTER(Tensor), c_size_t],
    "method_output": [c_void_p, c_size_t, POINTER(Tensor)],
    "session_create": [c_void_p, c_char_p, POINTER(c_void_p)],
    "session_feed": [c_void_p, c_void_p, c_size_t],
    "session_feed_embeddings": [c_void_p, c_void_p, c_size_t],
    "session_set_sampling": [c_void_p, c_double, c_uint32, c_double, c_uint64],
    "session_sample": [c_void_p, POINTER(c_int64)],
    "session_truncate": [c_void_p, c_int64],
    "session_save": [c_void_p, c_char_p],
    "session_save_memory": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "session_restore": [c_void_p, c_char_p],
    "session_restore_memory": [c_void_p, c_char_p, c_size_t],
}
"""Functions that return an error, without their ``slipway_``."""
_OTHERS: dict[str, tuple[object, list[object]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "dtype_name": (c_char_p, [c_int32]),
    "error_code": (c_int, [c_void_p]),
    "error_message": (c_char_p, [c_void_p]),
    "error_fix": (c_char_p, [c_void_p]),
    "error_free": (None, [c_void_p]),
    "pool_threads": (c_uint32, [c_void_p]),
    "pool_free": (None, [c_void_p]),
    "options_create": (c_void_p, []),
    "options_free": (None, [c_void_p]),
    "program_free": (None, [c_void_p]),
    "program_method_count": (c_size_t, [c_void_p]),
    "program_method_at": (c_void_p, [c_void_p, c_size_t]),
    "method_name": (c_char_p, [c_void_p]),
    "method_input_count": (c_size_t, [c_void_p]),
    "method_output_count": (c_size_t, [c_void_p]),
    "method_input_copied": (c_int, [c_void_p, c_size_t]),
    "session_free": (None, [c_void_p]),
    "session_width": (c_size_t, [c_void_p]),
    "session_logits": (POINTER(ctypes.c_float), [c_void_p, POINTER(c_size_t)]),
    "session_stops": (POINTER(c_int64), [c_void_p, POINTER(c_size_t)]),
    "session_position": (c_int64, [c_void_p]),
    "session_context": (c_int64, [c_void_p]),
}


def _open() -> ctypes.CDLL:
    name = "libslipway.dll" if sys.platform == "win32" else "libslipway.so.1"
    library = ctypes.CDLL(str(Path(__file__).with_name(name)))
    for short, arguments in _FALLIBLE.items():
        function = getattr(library, f"slipway_{short}")
        function.restype, function.argtypes = c_void_p, arguments
    for short, (result, arguments) in _OTHERS.items():
        function = getattr(library, f"slipway_{short}")
        function.restype, function.argtypes = result, arguments
    if (found := library.slipway_abi_version()) != ABI_VERSION:
        raise ImportError(f"{name} has version {found} of the binary interface, this package reads {ABI_VERSION}")
    return library


api = _open()


def text(value: bytes | None) -> str:
    """A text of the library."""
    return (value or b"").decode()


def must(error: int | None) -> None:
    """Raise the error that a function returned, if it returned one.

    Raises:
        InputError, Error: what the library says.
    """
    if not error:
        return
    code = int(api.slipway_error_code(error))
    message, fix = text(api.slipway_error_message(error)), text(api.slipway_error_fix(error))
    api.slipway_error_free(error)
    raise (InputError if code == INPUT else Error)(code, message, fix)
