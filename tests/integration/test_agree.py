"""A few comparisons of docs/proofs.md made again, and a planted error that must not pass."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
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


def test_a_planted_error_is_found_where_it_is_emulated(programs: dict[str, Compared], tmp_path: Path) -> None:
    program = programs["mlp fp32"]
    (real,) = program.outputs
    wrong = np.load(real)
    wrong.reshape(-1)[0] += 1e-3
    np.save(tmp_path / "output0.npy", wrong)
    for exact in real.parent.glob("exact*.npy"):  # float64's numbers, which lie beside a reference
        shutil.copy(exact, tmp_path)
    cell = look(at(*PLACES[1]), replace(program, outputs=(tmp_path / "output0.npy",)))
    assert (cell.outcome, cell.why) == ("differs", f"output0: 1 of {wrong.size} elements")
    assert 9e-4 < cell.max_abs < 1.1e-3
