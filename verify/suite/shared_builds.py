"""Builds that all tests share and that stay between runs."""

from __future__ import annotations

import os
from unittest.mock import patch

from core.formats.bundle import Native
from core.paths import cache_dir
from toolchains.bundle.native import build_native


def native(target: str) -> Native:
    """A target's native packages: built once for all tests that want them, not to be changed.

    Each target costs a minute of both cores the first time: linux-x86_64 and linux-arm64 are the ones that tests may
    build.
    """
    with patch.dict(os.environ, SLIPWAY_DIST=os.fspath(cache_dir("tests", "dist"))):
        return build_native(target)
