"""What a Ctrl-C becomes."""

from __future__ import annotations


def from_ctrl_c(error: BaseException | None) -> bool:
    """Whether a Ctrl-C caused ``error``: Python turns what comes while a class is made into a RuntimeError.

    What was raised ``from None`` has another cause: our own interrupt by `core.environment.beside`.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False
