"""The tables ``tools.toml``, of pinned tools, and ``systems.toml``: what every device of an operating system has, and
what binaries for it are to have."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import HostError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("tools.toml")
_SYSTEMS = Path(__file__).with_name("systems.toml")


@functools.cache
def table() -> dict[str, Any]:
    """The whole of ``tools.toml``."""
    with TABLE.open("rb") as file:
        return tomllib.load(file)


@functools.cache
def systems() -> Mapping[str, Any]:
    """The whole of ``systems.toml``."""
    with _SYSTEMS.open("rb") as file:
        return tomllib.load(file)


def hardening(libc: str) -> Mapping[str, Any]:
    """The row of programs that use the C library ``libc``: flags, and what they promise."""
    row: Mapping[str, Any] = systems()["hardening"][libc]
    return row


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
