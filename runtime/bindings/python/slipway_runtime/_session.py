"""Texts that language models read and write, over the C API."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import final

import numpy as np

from slipway_runtime import _native
from slipway_runtime._api import Array, Program, _count, _path
from slipway_runtime._native import Error, InputError, api, byref, must


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
        handle, name = _native.pointer(), None if method is None else _path(method)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        data, size = _native.pointer(), ctypes.c_size_t()
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


__all__ = ["Session"]
