"""The pinned tools (``tools.toml``) and the digest that tells one set of them from another."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from core.errors import HostError

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


def program(name: str) -> str:
    """Path of ``cmake`` or ``ninja``: the environment's own, else the system's.

    Raises:
        HostError: neither has it.
    """
    own = Path(sys.executable).parent / name
    found = os.fspath(own) if own.is_file() else shutil.which(name)
    if not found:
        raise HostError(
            f"{name} is not installed.", "the environment is incomplete", "./inv doctor, which says how to complete it"
        )
    return found
