"""The tables ``tools.toml``, of pinned tools, and ``systems.toml``: what every device of an operating system has, and
what binaries for it are to have."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import HostError
from core.paths import cache_dir
from core.toml import tomllib

TABLE = Path(__file__).with_name("tools.toml")
_SYSTEMS = Path(__file__).with_name("systems.toml")


@functools.cache
def read(file: Path) -> dict[str, Any]:
    """A table of ours, not to be changed."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def table() -> Mapping[str, Any]:
    """The whole of ``tools.toml``."""
    return read(TABLE)


def systems() -> Mapping[str, Any]:
    """The whole of ``systems.toml``."""
    return read(_SYSTEMS)


def hardening(libc: str) -> Mapping[str, Any]:
    """The row of programs that use the C library ``libc``: flags, and what they promise."""
    row: dict[str, Any] = systems()["hardening"][libc]
    own = systems()["libcxx"]["compile"] if row.get("libcxx") else []
    return {**row, "compile": [*row["compile"], *own]}


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


VARIABLE = "ANDROID_NDK_HOME"
CONF = "tools.android:ndk_path"


def named() -> str:
    """The NDK's folder as the environment or Conan's configuration names it, there or not; empty when none does."""
    if folder := os.environ.get(VARIABLE):
        return folder
    # Conan's configuration may name one, Slipway's own or the user's.
    for home in (cache_dir("conan"), Path(os.environ.get("CONAN_HOME") or Path.home() / ".conan2")):
        try:
            text = (home / "global.conf").read_text(encoding="utf-8")
        except OSError:
            continue
        if found := re.search(rf"^\s*{re.escape(CONF)}\s*=\s*(.+?)\s*$", text, re.MULTILINE):
            return found[1].strip("\"'")
    return ""
