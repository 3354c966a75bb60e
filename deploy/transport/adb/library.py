"""The one import of adbutils, which has no wheel for some machines (64-bit Arm): a sentence there, no traceback."""

from __future__ import annotations

import platform

from core.errors import HostError

try:
    from adbutils import AdbClient, AdbConnection, AdbError, adb_path
except ModuleNotFoundError as error:
    raise HostError(
        "This machine cannot reach devices over adb.",
        f"the package adbutils has no wheel for {platform.system()} on {platform.machine()}",
        "deploy to them from an x86-64 machine, or reach them by SSH",
    ) from error

__all__ = ["AdbClient", "AdbConnection", "AdbError", "adb_path"]
