"""Reading the TOML tables of this package."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent


def read(name: str) -> dict[str, dict[str, Any]]:
    """The table of tables in ``models/<name>``."""
    path = HERE / name
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read.", str(error), "git checkout -- models") from error


def near(name: str, names: Iterable[str]) -> str:
    """``Did you mean ...? `` when something in ``names`` looks like ``name``, else empty."""
    close = difflib.get_close_matches(name, list(names), n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}? " if close else ""
