"""Random texts, the same ones in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator

ODD = "\x00\t\n\r\x1b\x7f\x85\x9b\xad\u200b\u2028\u202e\ud800\udfff\ufeff\U000e0041<>&\"'[]:#|\\{}"


def text(draw: random.Random, most: int = 60, alphabet: str = "") -> str:
    """Letters of ``alphabet``; without one of all that there are, half of a character, too, and often odd ones."""
    if alphabet:
        return "".join(draw.choices(alphabet, k=draw.randint(0, most)))
    kinds = (lambda: draw.choice(ODD), lambda: chr(draw.randrange(0x180)), lambda: chr(draw.randrange(0x110000)))
    return "".join(draw.choice(kinds)() for _ in range(draw.randint(0, most)))


def texts(count: int, most: int = 60, alphabet: str = "") -> Iterator[str]:
    draw = random.Random(0)  # noqa: S311
    return (text(draw, most, alphabet) for _ in range(count))
