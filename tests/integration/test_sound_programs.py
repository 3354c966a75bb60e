"""A sample of ``./inv self.agree --sound``: our programs on the lean engine and on upstream's runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.files import sha256_bytes
from core.formats.bundle import Bundle
from toolchains.emulation import platforms
from toolchains.targets import get_target
from verify.agree.look import Executor, native
from verify.agree.sound import Case, collect, look_at, names

pytestmark = [pytest.mark.build, pytest.mark.export]

PLANTED = "made-lines-aligned"
"""Its numbers are changed: three layers without quantization."""
TIERS = ("Haswell", "Nehalem")

Cases = Mapping[str, Sequence[Case]]


@pytest.fixture(scope="module")
def ours() -> list[str]:
    """A sample of 60; ``self.agree --sound`` runs all of them, more than 340."""
    return sorted(names(), key=lambda name: sha256_bytes(name.encode()))[:60]  # every kind comes early


@pytest.fixture(scope="module")
def cases(ours: list[str]) -> Cases:
    """Kept between runs of the tests, by the exporter's versions and the code that makes and keeps programs."""
    return collect([*ours, PLANTED])


@pytest.fixture(scope="module")
def executor(lean: Bundle) -> Executor:
    return native(lean)


def bad(executor: Executor, cases: Iterable[Case]) -> list[str]:
    """What neither agrees nor is refused for a reason that upstream shares, or that docs/lean.md gives."""
    cells = [(case.about.name, look_at(executor, case)) for case in cases]
    return [f"{name}: {cell.outcome}: {cell.why}" for name, cell in cells if cell.wrong]


def test_our_programs_agree(cases: Cases, ours: list[str], executor: Executor) -> None:
    assert bad(executor, [case for name in ours for case in cases[name]]) == []


@pytest.mark.parametrize("cpu", TIERS)
def test_they_agree_on_lesser_cpus(cases: Cases, ours: list[str], lean: Bundle, cpu: str) -> None:
    lesser = Executor.of(lean, platforms.platform_for(get_target("linux-x86_64"), cpu))
    assert bad(lesser, [case for name in ours[:18] for case in cases[name]]) == []


def planted(case: Case, folder: Path, kinds: tuple[str, ...]) -> Case:
    """The case with an error in an element of some of its files."""
    changed: dict[str, tuple[Path, ...]] = {}
    for kind in kinds:
        (file,) = getattr(case, kind)
        wrong = np.load(file)
        wrong.reshape(-1)[0] += 0.5
        np.save(folder / file.name, wrong)
        changed[kind] = (folder / file.name,)
    return replace(case, **changed)  # type: ignore[arg-type]  # files alone


@pytest.mark.parametrize(("kinds", "right"), [(("outputs",), "lean"), (("outputs", "eager"), "upstream")])
def test_a_planted_error_is_found_and_pytorch_says_whose(
    cases: Cases, executor: Executor, tmp_path: Path, kinds: tuple[str, ...], right: str
) -> None:
    cell = look_at(executor, planted(cases[PLANTED][0], tmp_path, kinds))
    assert (cell.outcome, cell.right) == ("differs", right), cell


@pytest.mark.parametrize(("kinds", "outcome", "right"), [((), "agrees", "lean"), (("outputs",), "differs", "")])
def test_where_upstream_refuses_a_program_pytorch_decides(
    cases: Cases, executor: Executor, tmp_path: Path, kinds: tuple[str, ...], outcome: str, right: str
) -> None:
    case = cases[PLANTED][0]
    refused = replace(case, refused="RuntimeError: error: 0x12", outputs=case.eager)
    cell = look_at(executor, planted(refused, tmp_path, kinds))
    assert (cell.outcome, cell.right) == (outcome, right), cell
