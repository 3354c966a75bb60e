"""The folder of the user's Android NDK. Apart from the compiler family: the table of targets needs only this."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from core.paths import cache_dir

VARIABLE = "ANDROID_NDK_HOME"
CONF = "tools.android:ndk_path"


def _configurations() -> Iterator[Path]:
    """Conan's configuration files that may name an NDK: Slipway's own and the user's."""
    yield cache_dir("conan") / "global.conf"
    yield Path(os.environ.get("CONAN_HOME") or Path.home() / ".conan2") / "global.conf"


def named() -> str:
    """The NDK's folder as the environment or Conan's configuration names it, there or not; empty when none does."""
    if folder := os.environ.get(VARIABLE):
        return folder
    for file in _configurations():
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:
            continue
        if found := re.search(rf"^\s*{re.escape(CONF)}\s*=\s*(.+?)\s*$", text, re.MULTILINE):
            return found[1].strip("\"'")
    return ""
