"""JSON from elsewhere: what is refused and why, and that nothing but our own error ever comes out."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from pydantic import BaseModel

from core.strict_json import JsonError, parse_json, validated
from deploy.run.runner import RunnerResult
from tests.unit.test_result import ANSWER


@pytest.mark.parametrize(
    "text", ['{"a": [1, -2.5e3, true, null, "\\u00e4 \\ud83d\\ude00 \\" \\\\ [[["]}', "[]", "0", '"x"']
)
def test_what_is_read(text: str) -> None:
    assert parse_json(text) == json.loads(text)
    assert parse_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"), (b"{", "not JSON"), (b"[1,]", "not JSON"), (b"]" * 10_000_000, "not JSON"),
        (b"\xff\xfe", "UTF-8"), (b"\xef\xbb\xbf[]", "not JSON"), (b'"\xed\xa0\x80"', "UTF-8"),
        (b"[" * 200_000 + b"]" * 200_000, "deeper than 64"), (b'{"a":' * 100 + b"1" + b"}" * 100, "deeper than 64"),
        (b"[" + b"[],{}," * 600_000 + b"0]", "more than 1,048,576 arrays and objects"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"), (b"1e999", "too large"),
        (b"9" * 5000, "5000 digits"), (b'{"a": 1, "a": 2}', "'a' is in one object twice"),
        (b'"\\ud800"', "half a character"), (b'[{"\\udc00": 1}]', "half a character"),
        (b'"' + b"x" * (1 << 24) + b'"', "16,777,216 are read"), ('"\ud800"', "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_refused(raw: bytes | str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(JsonError, match=why) as caught:
        parse_json(raw)
    assert len(str(caught.value)) < 300
    assert time.monotonic() - begun < 10


def test_what_a_place_or_a_byte_becomes_is_a_value_or_our_error() -> None:
    assert parse_json(json.dumps(["[" * 1000, '\\"{' * 500])) == ["[" * 1000, '\\"{' * 500]
    good = {**ANSWER, "kernels": [{"node": "a", "kernel": "b", "library": "c", "feature": "d"}], "profile": []}
    for path in places(good):
        for new in VALUES:
            try:
                found = validated(RunnerResult, changed(good, path, new))
            except JsonError:
                continue
            assert json.loads(found.model_dump_json())
    noise = random.Random(13)  # noqa: S311 - the same damage every time
    text = json.dumps(ANSWER).encode()
    for _ in range(1000):
        raw = bytearray(text)
        for _ in range(noise.randint(1, 6)):
            at = noise.randrange(len(raw))
            kind = noise.randrange(4)
            if kind == 0:
                raw[at] = noise.randrange(256)
            elif kind == 1:
                del raw[at : at + noise.randint(1, 20)]
            elif kind == 2:
                raw[at:at] = raw[: noise.randint(0, 60)]
            else:
                raw[at:at] = noise.choice([b"[" * 70, b"NaN", b"\\ud800", b'"', b"1e400", b"-", b"\x00", b"}]"])
            raw = raw or bytearray(b"x")
        try:
            validated(RunnerResult, parse_json(bytes(raw)))
        except JsonError as error:
            assert str(error)


class Model(BaseModel):
    """Something to fit."""

    number: int
    sizes: tuple[int, ...] = ()
    share: float = 0.0


@pytest.mark.parametrize(
    "value",
    [{"number": True}, {"number": "1"}, {"number": 1.0}, {"number": 1, "sizes": [True]}, {"number": 1, "share": "0.5"}],
)
def test_types_are_strict(value: dict[str, Any]) -> None:
    with pytest.raises(JsonError):
        validated(Model, value)
    assert validated(Model, {"number": 1, "sizes": [2], "share": 1}) == Model(number=1, sizes=(2,), share=1.0)


VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, -(2**63), 0.5, 1e308, -1e-308, "", "x", "\x1b[2J",
    "f4,(", "９", "²", [], [1], [[]], {}, {"a": 1}, ["x"] * 70,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path]
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(each, (*path, key))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy
