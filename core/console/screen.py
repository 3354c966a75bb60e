"""The consoles on stdout and stderr."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 160
"""Columns of a table that no terminal limits (a log, a pipe): wide enough that commands in it stay whole."""


@functools.cache
def out() -> Console:
    """The console on stdout."""
    import os

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
