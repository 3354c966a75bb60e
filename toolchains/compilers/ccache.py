"""ccache: a file that was compiled once is not compiled again, in any build or checkout.

It stands before the compiler as CMake's compiler launcher, in Conan's profile, so that every recipe's C, C++ and
assembly go through it. Nothing that is built depends on it: no package's identity counts it.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path

from core import console
from core.errors import HostError
from core.files import keep_text, sha256_bytes
from core.paths import cache_dir
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.debian.tree import own_loader_argv
from toolchains.tools import table

SWITCH = "SLIPWAY_CCACHE"
"""``off`` in this environment variable compiles without it."""
REMOTE = "SLIPWAY_CCACHE_REMOTE"
"""A server that keeps results for several machines, as ccache's manual writes it: ``redis://host``, ``http://host/x``."""

_BODY = Path(__file__).with_name("ccache_launcher.sh")
_LANGUAGES = ("C", "CXX", "ASM")


def off() -> bool:
    """Whether the user switched it off."""
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")


def _program() -> list[str]:
    """Argv of ccache; empty if it is not available."""
    if off() or debian.runnable():
        return []
    try:
        root = debian.tree(table()["ccache"]["suite"], host_arch(), ["ccache"], closure=True)
        return own_loader_argv(root, "usr/bin/ccache")
    except HostError as error:
        console.note(f"building without ccache: {error.what}")
        return []


def _launcher(home: Path) -> Path | None:
    """The script that runs a compiler through ccache; nothing when there is no ccache."""
    if not (program := _program()):
        return None
    settings = {
        "program": shlex.join(program),
        "home": os.fspath(home),
        "real": os.fspath(home.resolve()),
        "size": table()["ccache"]["size"],
        "folder": os.fspath(cache_dir("ccache")),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    text = "\n".join(["#!/bin/sh", "set -eu", *lines, _BODY.read_text(encoding="utf-8")])
    file = cache_dir("toolchains") / f"ccache-{sha256_bytes(text.encode())[:16]}"
    keep_text(file, text, 0o755)
    return file


def variables(home: Path, key: str) -> dict[str, str]:
    """CMake's variables that put ccache before the compilers; none when there is no ccache.

    Args:
        home: Conan's, below which folders have random names.
        key: changes with the compilers, see `toolchains.compilers.families.Compilers`.
    """
    launcher = _launcher(home)
    return {f"CMAKE_{name}_COMPILER_LAUNCHER": f"{launcher};{key}" for name in _LANGUAGES if launcher}


def environment(log: Path) -> dict[str, str]:
    """Variables for a build whose hits and misses `hits` is to count from ``log``."""
    if off():
        return {}
    found = {"CCACHE_STATSLOG": os.fspath(log)}
    if remote := os.environ.get(REMOTE, ""):
        found["CCACHE_REMOTE_STORAGE"] = remote
    return found


def hits(log: Path) -> tuple[int, int]:
    """How many compilations of a build came from the cache, and how many there were."""
    try:
        lines = Counter(log.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return 0, 0
    found = lines["direct_cache_hit"] + lines["preprocessed_cache_hit"]
    return found, found + lines["cache_miss"]
