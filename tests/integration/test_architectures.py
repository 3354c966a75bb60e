"""Further architectures on the lean engine, against upstream's runtime; ``./inv self.agree`` compares all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.formats.bundle import Bundle
from core.formats.program import load_program
from models.zoo import load_compared
from tests.support.builds import lean
from verify.agree.look import look, native
from verify.agree.programs import prepare, table

__all__ = ["lean"]

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

TESTED = [f"{name} {scheme}" for name, one in load_compared().items() for scheme in one.tests]


@pytest.mark.parametrize("name", TESTED)
def test_an_architecture_agrees_with_upstreams_runtime(lean: Bundle, name: str) -> None:
    about = table()[name]
    (program,) = prepare([about])
    seen = look(native(lean), program)
    assert seen.good, seen
    assert seen.outcome == "exact" or not about.exact, seen
    delegates = load_program(program.file.parent).delegates
    assert delegates == 0 if about.scheme == "portable" else delegates > 0


def test_state_that_is_lost_between_executions_would_be_seen(lean: Bundle) -> None:
    (program,) = prepare([table()["llama portable"]])
    assert program.runs > 1
    assert look(native(lean), replace(program, runs=1)).outcome == "differs"
