"""The one import of adbutils. It has no wheel for 64-bit Arm: there it comes from a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import sys

from core import environment

if importlib.util.find_spec("adbutils") is None:
    sys.path.append(os.fspath(environment.apart("adb")))

from adbutils import AdbClient, AdbError

__all__ = ["AdbClient", "AdbError"]
