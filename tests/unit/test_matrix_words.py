"""Expressions over the matrix: read as written, checked against Python's own logic, refused with the place."""

from __future__ import annotations

import fnmatch
import random

import pytest

from core.errors import UsageError
from deploy.matrix.words import FIELDS, Words, parse

PHONE: Words = {
    "device": ("phone",), "tag": ("emulated", "shelf"), "target": ("android-arm64",), "engine": ("lean",),
    "program": ("mlp-qs8",), "model": ("mlp",), "scheme": ("qs8",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("  ", True),
        ("phone", True),
        ("phon", False),
        ("phone & mlp*", True),
        ("phone&!mlp", False),
        ("!!phone", True),
        ("linux-* | android-*", True),
        ("linux-* | android-* & conv", False),
        ("(linux-* | android-*) & mlp", True),
        ("!(linux-* | conv) & [em]mulated", True),
        ("device:lean", False),
        ("engine:lean", True),
        ("scheme:q?8", True),
        ("tag:shelf & program:mlp-qs8", True),
        ("PHONE", False),
    ],
)
def test_an_expression_means_what_it_says(text: str, fits: bool) -> None:
    assert parse(text).fits(PHONE) is fits


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("phone &", "at character 8 there is the end where a word"),
        ("(phone", "at character 7 there is the end where & or | or )"),
        ("phone)", "at character 6 there is ')'"),
        ("phone mlp", "at character 7 there is 'mlp' where & or |"),
        ("| phone", "at character 1 there is '|'"),
        ("!", "at character 2"),
        ("device:", "device:NAME"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert place in caught.value.cause


def test_fields_are_known_and_depth_is_bounded() -> None:
    with pytest.raises(UsageError, match="no field 'devise'") as caught:
        parse("devise:pi")
    assert "did you mean device" in caught.value.cause
    with pytest.raises(UsageError, match="deeper"):
        parse("(" * 100_000 + "a" + ")" * 100_000)
    with pytest.raises(UsageError, match="deeper"):
        parse("!" * 100_000 + "a")


def test_misspelt_words_are_told() -> None:
    parse("phone & !mlp").check([PHONE])
    with pytest.raises(UsageError, match="'phne'") as caught:
        parse("mlp | phne").check([PHONE])
    assert "did you mean phone?" in caught.value.cause


def _expression(draw: random.Random, depth: int = 4) -> tuple[str, str]:
    """An expression, and the same in Python."""
    kind = draw.choice("wwn&|" if depth else "w")
    if kind == "w":
        pattern = draw.choice(["phone", "mlp*", "q?8", "lean", "x", "*", "[ab]*", "pi"])
        name = draw.choice(["", *FIELDS])
        meant = [word for key, words in PHONE.items() if name in ("", key) for word in words]
        blank = draw.choice(["", " "])
        return blank + (f"{name}:" if name else "") + pattern + blank, str(bool(fnmatch.filter(meant, pattern)))
    if kind == "n":
        text, python = _expression(draw, depth - 1)
        return f"!({text})", f"(not {python})"
    left, right = _expression(draw, depth - 1), _expression(draw, depth - 1)
    if kind == "&":
        return f"({left[0]})&({right[0]})", f"({left[1]} and {right[1]})"
    return f"{left[0]}|{right[0]}", f"({left[1]} or {right[1]})"


def test_logic_is_pythons_own() -> None:
    draw = random.Random(0)  # noqa: S311
    for text, python in (_expression(draw) for _ in range(200)):
        assert parse(text).fits(PHONE) is eval(python), text  # noqa: S307 - made of True, False, and, or, not
