"""Fixtures for integration tests: bundles, programs of the zoo, and a device that is this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import ROOT
from models.lowering import shortcuts
from tests.support.builds import arm, host, lean, lean_runner, made_by
from tests.support.deploying import bench, bundle, other_program, program, root

__all__ = ["arm", "bench", "bundle", "host", "lean", "lean_runner", "other_program", "program", "root"]


@pytest.fixture(scope="module")
def hastened() -> Iterator[None]:
    """Upstream's exporter works as fast as it does for us."""
    with shortcuts.in_torch(), shortcuts.in_lowering():
        yield


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs of fixtures/runner/programs.py."""
    return made_by(ROOT / "tests/fixtures/runner/programs.py")
