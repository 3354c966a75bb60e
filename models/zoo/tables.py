"""Reading the TOML tables of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent.parent
"""The folder ``models``."""
CODE = ("", "zoo", "users", "request", "loading", "lowering", "reference", "samples")
"""The folders in it whose modules export."""


def read(name: str | Path) -> dict[str, dict[str, Any]]:
    """The table of tables in ``models/<name>``, or in the file of an absolute path."""
    path = HERE / name
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read.", str(error), f"git checkout -- {path.relative_to(ROOT).as_posix()}"
        ) from error
