"""Upstream's runtime for the exports of a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.paths import cache_dir
from models.reference.host import Host


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One runtime for all tests: starting it costs more than a small export."""
    with Host(cache_dir("logs") / "export-tests.log") as one:
        yield one
