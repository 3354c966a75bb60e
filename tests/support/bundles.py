"""Bundles that the tests of several files run."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.formats.bundle import RUNNER, Bundle
from toolchains.bundle.builder import build
from toolchains.targets import host_target


@pytest.fixture(scope="session")
def lean() -> Bundle:
    """This machine's, of the lean engine."""
    return build(host_target().name, "lean")


@pytest.fixture(scope="session")
def lean_runner(lean: Bundle) -> Path:
    return lean.path / RUNNER


@pytest.fixture(scope="session")
def arm() -> Bundle:
    """linux-arm64's, made before a test has a ``dist/`` of its own, where it would be linked again."""
    return build("linux-arm64", "executorch")
