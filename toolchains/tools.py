"""The pinned tools (``tools.toml``) and the digest that tells one set of them from another."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("tools.toml")


@functools.cache
def table() -> dict[str, Any]:
    """The whole of ``tools.toml``."""
    with TABLE.open("rb") as file:
        return tomllib.load(file)
