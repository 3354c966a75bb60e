"""What a Ctrl-C becomes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


def from_ctrl_c(error: BaseException | None) -> bool:
    """Whether a Ctrl-C caused ``error``: Python turns what comes while a class is made into a RuntimeError.

    What was raised ``from None`` has another cause: our own interrupt by `core.environment.beside`.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


@contextlib.contextmanager
def interrupts_later() -> Iterator[list[int]]:
    """Note a Ctrl-C that comes while the block runs, instead of raising it there: a child half started would be lost.

    Where Ctrl-C is ignored or handled by others, and outside of the main thread, which alone hears it, nothing changes.
    """
    noted: list[int] = []
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
