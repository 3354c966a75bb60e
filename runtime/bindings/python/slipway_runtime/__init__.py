"""Run programs that ExecuTorch exported (``.pte``), with NumPy arrays in and out.

    import slipway_runtime

    program = slipway_runtime.load("model.pte")
    (logits,) = program.forward(pixels)

Arrays are not copied: inputs are read where they are, and outputs are read-only views of the program's memory, valid
until its next execution (``numpy.array(logits)`` keeps one). Use a program from one thread at a time; two threads
may use two programs, also on one `Pool`. While a program runs, Python's other threads run, too. A `Session` is a text
that a language model reads and writes.
"""

from __future__ import annotations

from slipway_runtime._api import Method, Pool, Program, Session, Spec, load, version
from slipway_runtime._native import ABI_VERSION, Error, InputError

__all__ = ["ABI_VERSION", "Error", "InputError", "Method", "Pool", "Program", "Session", "Spec", "__version__", "load",
           "version"]  # fmt: skip

__version__ = version()
