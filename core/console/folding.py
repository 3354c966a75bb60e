"""Long words of a table's cell, broken where a reader expects it: ``avx512f`` in a kernel's name stays whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.text import Text

_AFTER = "_-/,"


class Folding:
    """A text that breaks words longer than its column after an underscore, a dash, a slash or a comma."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield folded(self._text, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement.get(console, options, self._text)


def folded(text: Text, width: int) -> Text:
    """The text with line breaks in words that do not fit ``width``; a part without such a mark stays as it is."""
    from rich.text import Text

    cuts = []
    for word in re.finditer(r"\S+", text.plain):
        start = word.start()
        while word.end() - start > width:
            at = max(text.plain.rfind(mark, start, start + width) for mark in _AFTER) + 1
            if at <= start:
                break
            cuts.append(at)
            start = at
    return Text("\n").join(text.divide(cuts)) if cuts else text
