"""JSON from untrusted sources, read with limits on its size, depth, numbers, keys and characters.

Python's own reader accepts text that is not JSON (``NaN``), lets the last of two equal keys win, overflows its stack at
some depth, and passes on lone surrogates, which break every later writer.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)

DEPTH = 64
"""Levels of arrays and objects."""
LIMIT = 16 << 20
"""Bytes."""
_CONTAINERS = 1 << 20
"""Arrays and objects: each takes much more memory than its two characters."""
_DIGITS = 40
"""Digits of a whole number."""

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TEXT = re.compile(rb'"[^"]*"?')
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonError(ValueError):
    """It is not JSON that we accept; says why."""


def parse_json(raw: bytes | str, *, limit: int = LIMIT) -> Any:
    """The value of ``raw``.

    Args:
        limit: bytes at most.

    Raises:
        JsonError: too long, too deep, not JSON, not UTF-8; a key twice; an invalid or infinite number;
            half a character.
    """
    try:
        data = raw.encode() if isinstance(raw, str) else bytes(raw)
        if len(data) > limit:
            raise JsonError(f"it has {len(data):,} bytes; {limit:,} are read")
        text = data.decode()
    except UnicodeError as error:
        raise JsonError("it is not UTF-8") from error
    _check_depth(data)
    try:
        value = json.loads(
            text, parse_constant=_constant, parse_float=_float, parse_int=_int, object_pairs_hook=_object
        )
    except JsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonError(f"it is not JSON: {str(error)[:120]}") from error
    if b"\\u" in data:
        _check_letters(value)
    return value


def validated(model: type[Model], value: Any) -> Model:
    """A value that `parse_json` gave as ``model``, strictly: ``true`` and ``"1"`` are not numbers.

    Raises:
        JsonError: it does not fit; names at most three of the keys concerned.
    """
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        found = [
            f"{'.'.join(str(part) for part in problem['loc'])[:80]}: {problem['msg'][:120]}"
            for problem in error.errors(include_url=False, include_input=False)[:3]
        ]
        raise JsonError("; ".join(found)) from error


def _check_depth(data: bytes) -> None:
    """Before it is parsed: the parser uses the stack for each level."""
    signs = _TEXT.sub(b"", _ESCAPE.sub(b"", data)).translate(None, _OTHERS)
    if signs.count(b"[") + signs.count(b"{") > _CONTAINERS:
        raise JsonError(f"it has more than {_CONTAINERS:,} arrays and objects")
    level = 0
    for sign in signs:
        level += 1 if sign in b"[{" else -1
        if level > DEPTH:
            raise JsonError(f"it is nested deeper than {DEPTH} levels")
        if level < 0:
            return  # not JSON: the parser reports the position


_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def _check_letters(value: Any) -> None:
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise JsonError("a text in it holds half a character (a lone surrogate)")
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_letters(key)
            _check_letters(each)
    elif isinstance(value, list):
        for each in value:
            _check_letters(each)


def _constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"the number {text[:20]} is too large")
    return value


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise JsonError(f"a whole number in it has {len(text)} digits")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise JsonError(f"the name {twice[:60]!r} is in one object twice")
    return found
