"""Further architectures on the lean engine, against upstream's runtime; ``./inv self.agree`` compares all of them."""

from __future__ import annotations

import pytest

from core.formats.bundle import Bundle
from models.architectures.table import load_architectures

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

TESTED = [(name, scheme) for name, one in load_architectures().items() for scheme in one.tests]


@pytest.fixture(scope="module")
def lean() -> Bundle:
    from core.environment import ensure_export
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    ensure_export()
    return build(host_target().name, "lean")


@pytest.mark.parametrize(("name", "scheme"), TESTED)
def test_an_architecture_agrees_with_upstreams_runtime(lean: Bundle, name: str, scheme: str) -> None:
    from models.architectures.exporting import references
    from verify.agree.look import look_native

    architecture = load_architectures()[name]
    reference = references([(architecture, scheme)])[0]
    seen = look_native(lean, reference)
    assert seen.good, seen
    assert seen.outcome == "exact" or not architecture.exact, seen
    assert reference.delegates == 0 if scheme == "portable" else reference.delegates > 0


def test_state_that_is_lost_between_executions_would_be_seen(lean: Bundle) -> None:
    from dataclasses import replace

    from models.architectures.exporting import references
    from verify.agree.look import look_native

    reference = references([(load_architectures()["llama"], "portable")])[0]
    assert look_native(lean, replace(reference, runs=1)).outcome == "differs"
