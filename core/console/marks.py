"""Colours and symbols for what matters: ``✓ agrees``, ``✗ MISSING``. A terminal shows them, a pipe gets the words only.

``NO_COLOR`` leaves the symbols (https://no-color.org).
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, TextIO

from core.plain import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GOOD = ("agrees", "better", "identical", "ok", "passed")
_BAD = ("DIFFERS", "FAILED", "FAILS", "MISSING", "THROTTLED", "worse")
_UNSURE = ("busy", "cannot tell", "not run", "optional", "unknown")
_MARKS = {
    **dict.fromkeys(_GOOD, ("✓", "green")),
    **dict.fromkeys(_BAD, ("✗", "bold red")),
    **dict.fromkeys(_UNSURE, ("•", "yellow")),
}
_VERDICT = re.compile(rf"({'|'.join(map(re.escape, _MARKS))})(?![\w-])")
_LOUD = re.compile(r"(?<![\w-])(?:DIFFERS|FAILED|FAILS|MISSING|THROTTLED)(?![\w-])")
COLUMNS = ("outcome", "state", "verdict")
"""Columns whose cells begin with such a word."""


def marked(text: str, word: str) -> Text:
    """`plain` text with the symbol and the colour of a verdict before it; without any if the word is none."""
    from rich.text import Text

    symbol, style = _MARKS.get(word, ("", ""))
    return Text.assemble((f"{symbol} ", style), plain(text)) if symbol else Text(plain(text))


def cell(text: str, column: str) -> Text:
    """A table's cell: a verdict in a column of verdicts has its symbol, and a loud word its colour anywhere."""
    from rich.text import Text

    verdict = _VERDICT.match(text) if column in COLUMNS else None
    if verdict is None:
        return line(text)
    symbol, style = _MARKS[verdict[1]]
    return Text.assemble((f"{symbol} {verdict[1]}", style), plain(text[verdict.end() :]))


def line(text: str) -> Text:
    """A line with its loud words and a leading ``Warning:`` in colour."""
    from rich.text import Text

    made = Text(plain(text))
    made.highlight_regex(_LOUD, "bold red")
    made.highlight_regex(r"^Warning:", "yellow")
    return made


def failure(text: str, stream: TextIO) -> str:
    """An error's lines for ``stream``: on a terminal with a symbol and in colour. rich would take long to import."""
    if not (stream.isatty() and os.environ.get("TERM") != "dumb"):
        return text
    lines = text.splitlines() or [""]
    lines[0] = _in(f"✗ {lines[0]}", "1;31")
    for label in ("Cause:", "Try:"):
        lines = [_in(label, "1") + each[len(label) :] if each.startswith(label) else each for each in lines]
    return "\n".join(lines)


def _in(text: str, code: str) -> str:
    return text if os.environ.get("NO_COLOR") else f"\x1b[{code}m{text}\x1b[0m"


PIPED_WIDTH = 160
"""Columns of a table that no terminal limits (a log, a pipe): wide enough that commands in it stay whole."""


@functools.cache
def out() -> Console:
    """The console on stdout."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


@functools.cache
def err() -> Console:
    """The console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)
