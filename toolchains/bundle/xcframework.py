"""An XCFramework: one folder with a static library for iPhones and one for Xcode's simulator, as Xcode takes them.

Apple describes neither the folder nor its ``Info.plist`` field by field; both are as ``xcodebuild -create-xcframework``
writes them. Each slice's library was checked against what the list says of it.
"""

from __future__ import annotations

import plistlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolchains.targets import Target

NAME = "slipway.xcframework"
_HEADERS = "Headers"
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "x86_64"}
_MODULE_MAP = """\
module slipway {
  header "slipway.h"
  link "c++"
  export *
}
"""
"""For ``import slipway`` in Swift and ``@import slipway;`` in Objective-C: the C API. In the folder of the module's
name, so that two XCFrameworks of an app do not overwrite each other's."""


@dataclass(frozen=True)
class Slice:
    """The library of one platform."""

    target: Target
    library: Path

    @property
    def identifier(self) -> str:
        """The slice's folder: ``ios-arm64-simulator``."""
        architecture = _ARCHITECTURES[self.target.machine]
        variant = "-simulator" if self._simulated else ""
        return f"{self.target.os}-{architecture}{variant}"

    @property
    def _simulated(self) -> bool:
        return self.target.platform != self.target.os

    def row(self) -> dict[str, object]:
        """What the list of slices says of it."""
        variant = {"SupportedPlatformVariant": "simulator"} if self._simulated else {}
        return {
            "BinaryPath": self.library.name,
            "HeadersPath": _HEADERS,
            "LibraryIdentifier": self.identifier,
            "LibraryPath": self.library.name,
            "SupportedArchitectures": [_ARCHITECTURES[self.target.machine]],
            "SupportedPlatform": self.target.os,
            **variant,
        }


def write(folder: Path, slices: Sequence[Slice], headers: Path) -> Path:
    """Write `NAME` into ``folder``; its path.

    Args:
        headers: the folder that programs have on their include path; it holds ``slipway/slipway.h``.
    """
    top = folder / NAME
    for part in slices:
        inside = top / part.identifier
        shutil.copytree(headers, inside / _HEADERS)
        (inside / _HEADERS / "slipway" / "module.modulemap").write_text(_MODULE_MAP, encoding="utf-8")
        shutil.copyfile(part.library, library(top, part))
    listed = {
        "AvailableLibraries": [part.row() for part in slices],
        "CFBundlePackageType": "XFWK",
        "XCFrameworkFormatVersion": "1.0",
    }
    with (top / "Info.plist").open("wb") as file:
        plistlib.dump(listed, file)
    return top


def library(top: Path, part: Slice) -> Path:
    """The path of a slice's library."""
    return top / part.identifier / part.library.name
