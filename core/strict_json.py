"""JSON from untrusted sources, by pydantic's own reader, which refuses what is not JSON and what is nested too deep."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

Model = TypeVar("Model", bound=BaseModel)


class Frozen(BaseModel):
    """Data that does not change, and that has no field besides those that are declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


LIMIT = 16 << 20
"""Bytes."""


class JsonError(ValueError):
    """It is not JSON that we accept; says why."""


def parse_json(raw: bytes | str, *, limit: int = LIMIT) -> Any:
    """The value of ``raw``.

    Args:
        limit: bytes at most.

    Raises:
        JsonError: too long, too deep, not JSON, not UTF-8, half a character, or a number of thousands of digits.
    """
    try:
        data = raw.encode() if isinstance(raw, str) else bytes(raw)
        if len(data) > limit:
            raise JsonError(f"it has {len(data):,} bytes; {limit:,} are read")
        return from_json(data, allow_inf_nan=False)
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(f"it is not JSON: {str(error)[:120]}") from error


def validated(model: type[Model], value: Any) -> Model:
    """A value that `parse_json` gave as ``model``, strictly: ``true`` and ``"1"`` are not numbers.

    Raises:
        JsonError: it does not fit, names at most three of the keys concerned; or a number is too large.
    """
    try:
        return model.model_validate_json(json.dumps(value, allow_nan=False), strict=True)
    except ValidationError as error:
        found = [
            f"{'.'.join(str(part) for part in problem['loc'])[:80]}: {problem['msg'][:120]}"
            for problem in error.errors(include_url=False, include_input=False)[:3]
        ]
        raise JsonError("; ".join(found)) from error
    except ValueError as error:
        raise JsonError(f"a number in it is too large: {error}") from error
