"""The table ``systems.toml``: what every device of an operating system has, and what binaries for it are to have."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("systems.toml")


@functools.cache
def systems() -> Mapping[str, Any]:
    """The table as it stands."""
    with FILE.open("rb") as file:
        return tomllib.load(file)


def hardening(libc: str) -> Mapping[str, Any]:
    """The row of programs that use the C library ``libc``: flags, and what they promise."""
    row: Mapping[str, Any] = systems()["hardening"][libc]
    return row
