"""Our sound programs as tests that `verify.upstream.worker` runs beside upstream's own."""

from __future__ import annotations

import pytest

from verify.sound.table import programs
from verify.upstream.worker import Collector

_PROGRAMS = programs()


@pytest.mark.parametrize("name", list(_PROGRAMS))
def test_program(name: str, collector: Collector) -> None:
    """Give one to the collector."""
    collector.keep_program(_PROGRAMS[name]())
