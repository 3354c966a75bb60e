"""What a warm exporter must have in common with the command that asks it: code, packages, environment."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from core.environment import bootstrap
from core.files import sha256_bytes
from core.paths import ROOT
from models.request import versions

_ROOMS = ("core", "models", "verify/nets")
_HARMLESS = frozenset(
    ["_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "COLORTERM", "WINDOWID", "DISPLAY", "PS1", "LS_COLORS"]
)
"""Variables that no library reads when it is loaded. The copy gets them, too."""
_OWN = ("SLIPWAY_", "INVOKE_", "SSH_", "TMUX", "STY", "VTE_", "XDG_SESSION", "DBUS_", "WAYLAND_", "PYTEST_")
"""Beginnings of such names: ours are read when they are needed."""


def environment() -> dict[str, str]:
    """The variables that libraries may read while they are loaded."""
    return {
        name: value for name, value in sorted(os.environ.items()) if name not in _HARMLESS and not name.startswith(_OWN)
    }


def code() -> str:
    """Digest of the code that exports, as it is on the disk now."""
    found = {}
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found[path.relative_to(ROOT).as_posix()] = sha256_bytes(path.read_bytes())
    return sha256_bytes(json.dumps(found, sort_keys=True).encode())


def key() -> str:
    """Digest of everything that decides what a process has in memory after it has loaded the exporter."""
    stamp = ""
    with contextlib.suppress(OSError):
        stamp = bootstrap.stamp(Path(sys.prefix), "export").read_text("utf-8")
    parts = {
        "root": os.fspath(ROOT),
        "python": [sys.executable, sys.version],
        "packages": [stamp, versions(), versions("onnx")],
        "code": code(),
        "environment": environment(),
        # Libraries make as many threads as there are processors for them when they are loaded.
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.nice(0),
    }
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())
