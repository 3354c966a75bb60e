"""Fixtures for integration tests: bundles, programs of the zoo, and a device that is this machine."""

from __future__ import annotations

from tests.support.builds import arm, host, lean, lean_runner
from tests.support.deploying import bench, bundle, other_program, program, root

__all__ = ["arm", "bench", "bundle", "host", "lean", "lean_runner", "other_program", "program", "root"]
