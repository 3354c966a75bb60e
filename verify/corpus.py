"""How programs are named on the command line, the same for all that measures and compares."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from core.cli.request import words
from core.errors import ConfigError


def pick(known: Iterable[str], expression: str, hint: str) -> list[str]:
    """The names that ``expression`` means, in their order.

    Args:
        expression: parts of names or patterns, with commas between them: ``llama,mlp q*``; all when empty.
        hint: a command with names that exist.

    Raises:
        ConfigError: one of them names nothing.
    """
    names, parts = list(known), words(expression)

    def means(part: str, name: str) -> bool:
        return part in name or fnmatch.fnmatchcase(name, part)

    for part in parts:
        if not any(means(part, name) for name in names):
            raise ConfigError(f"No program is called {part!r}.", f"they are {', '.join(names)}", hint, [part])
    return [name for name in names if not parts or any(means(part, name) for part in parts)]
