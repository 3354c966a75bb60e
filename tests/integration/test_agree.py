"""A few comparisons of docs/proofs.md made again, and a planted error that must not pass."""

from __future__ import annotations

import pytest

from core.formats.bundle import Bundle
from toolchains.bundle.builder import build
from toolchains.emulation import platforms
from toolchains.targets import get_target
from verify.agree.look import Executor, look
from verify.agree.programs import Compared, prepare, table

pytestmark = [pytest.mark.build, pytest.mark.export]

PLACES = [("linux-x86_64", "native"), ("linux-armv6", "arm1176")]


@pytest.fixture(scope="module")
def programs() -> dict[str, Compared]:
    """Programs of the zoo that other tests export, too."""
    return {one.about.name: one for one in prepare([table()[name] for name in ("mlp fp32", "mlp qs8", "mixed fp32")])}


def at(target: str, cpu: str) -> Executor:
    bundle: Bundle = build(target, "lean")
    return Executor.of(bundle, platforms.platform_for(get_target(target), cpu))


@pytest.mark.parametrize(("target", "cpu"), PLACES)
def test_the_table_is_right_today(programs: dict[str, Compared], target: str, cpu: str) -> None:
    executor = at(target, cpu)
    for name, program in programs.items():
        cell = look(executor, program)
        assert cell.good, f"{name}: {cell}"
        assert not program.about.exact or cell.outcome == "exact"
