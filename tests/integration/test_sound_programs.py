"""A sample of ``./inv self.agree --sound``: upstream's own tests and our programs on the lean engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.files import sha256_bytes
from core.formats.bundle import Bundle
from toolchains.emulation import platforms
from toolchains.targets import get_target
from verify.agree.look import Executor
from verify.agree.sound import look_at
from verify.upstream.suites import Case, Test, collect, our_names

pytestmark = [pytest.mark.build, pytest.mark.export]

ABS = "xnnpack/test/ops/test_abs.py::TestAbs::test_fp32_abs"
ADDMM = "xnnpack/test/ops/test_linear.py::TestLinear::test_fp32_addmm"
SKIPPED = "test/suite/operators/test_abs.py::test_abs_edge_cases[portable]"
FILE = "xnnpack/test/ops/test_prelu.py::TestPrelu::test_fp32_prelu_file_load"
TCONV = "xnnpack/test/ops/test_conv2d.py::TestConv2d::test_qs8_tconv_output_padding"
PORTABLE = "test/suite/operators/test_abs.py::test_abs_dtype[portable-float32]"


UPSTREAMS = [ABS, ADDMM, SKIPPED, FILE, TCONV, PORTABLE]
TIERS = ("Haswell", "Nehalem")


@pytest.fixture(scope="module")
def ours() -> list[str]:
    """With upstream's six tests a sample of 60; ``self.agree --sound`` runs all of our 340."""
    return sorted(our_names(), key=lambda name: sha256_bytes(name.encode()))[:54]  # every kind comes early


@pytest.fixture(scope="module")
def tests(ours: list[str]) -> dict[str, Test]:
    """Kept between runs of the tests, by the exporter's versions and the code that makes and collects programs."""
    return {one.name: one for one in collect([*UPSTREAMS, *ours])}


def on(target: str, cpu: str) -> Executor:
    from toolchains.bundle.builder import build

    bundle: Bundle = build(target, "lean")
    return Executor.of(bundle, platforms.platform_for(get_target(target), cpu))


@pytest.fixture(scope="module")
def executor() -> Executor:
    from toolchains.targets import host_target

    return on(host_target().name, platforms.NATIVE)


def bad(executor: Executor, tests: Iterable[Test]) -> list[str]:
    """What neither agrees nor is refused for a reason that upstream shares, or that docs/lean.md gives."""
    found = [f"{test.name}: {test.outcome}: {test.why}" for test in tests if test.outcome != "passed"]
    for case in (case for test in tests for case in test.cases):
        cell = look_at(executor, case)
        if cell.wrong:
            found.append(f"{case.name}: {cell.outcome}: {cell.why}")
    return found


def test_upstreams_programs_agree(tests: dict[str, Test], executor: Executor) -> None:
    some = {name: tests[name] for name in UPSTREAMS}
    found = {name: [look_at(executor, case) for case in test.cases] for name, test in some.items()}
    assert all(cell.good for cells in found.values() for cell in cells), found
    # A bias of one row, three sizes of layers, each lowered in two ways.
    assert {name: len(cells) for name, cells in found.items()} == {
        ABS: 1, ADDMM: 6, SKIPPED: 0, FILE: 1, TCONV: 2, PORTABLE: 1
    }  # fmt: skip


def test_our_programs_agree(tests: dict[str, Test], ours: list[str], executor: Executor) -> None:
    assert bad(executor, [tests[name] for name in ours]) == []


@pytest.mark.parametrize("cpu", TIERS)
def test_they_agree_on_lesser_cpus(tests: dict[str, Test], ours: list[str], cpu: str) -> None:
    assert bad(on("linux-x86_64", cpu), [tests[name] for name in ours[:18]]) == []


@pytest.mark.long  # the other tests here are the sample; this one builds for another target, minutes at first
def test_they_agree_with_the_kernels_of_a_cortex_a7(tests: dict[str, Test]) -> None:
    """XNNPACK computes single pixels with a kernel of its own there, which was another operator's."""
    executor = on("android-armv7", "cortex-a7")
    cells = [look_at(executor, case) for case in tests[TCONV].cases]
    assert (len(cells), [cell for cell in cells if not cell.good]) == (2, [])


def planted(case: Case, folder: Path, kinds: tuple[str, ...]) -> Case:
    """The case with an error in an element of some of its files."""
    shutil.copytree(case.folder, folder, dirs_exist_ok=True)
    for kind in kinds:
        (file,) = replace(case, folder=folder).files(kind)
        wrong = np.load(file)
        wrong.reshape(-1)[0] += 0.5
        np.save(file, wrong)
    return replace(case, folder=folder)


@pytest.mark.parametrize(("kinds", "right"), [(("output",), "lean"), (("output", "eager"), "upstream")])
def test_a_planted_error_is_found_and_pytorch_says_whose(
    tests: dict[str, Test], executor: Executor, tmp_path: Path, kinds: tuple[str, ...], right: str
) -> None:
    cell = look_at(executor, planted(tests[ADDMM].cases[0], tmp_path, kinds))
    assert (cell.outcome, cell.right) == ("differs", right), cell


@pytest.mark.parametrize(("kinds", "outcome", "right"), [((), "agrees", "lean"), (("eager",), "differs", "")])
def test_where_upstream_refuses_a_program_pytorch_decides(
    tests: dict[str, Test], executor: Executor, tmp_path: Path, kinds: tuple[str, ...], outcome: str, right: str
) -> None:
    refused = replace(tests[ADDMM].cases[0], refused="RuntimeError: error: 0x12", outputs=0)
    case = planted(refused, tmp_path, kinds)
    for file in case.files("eager"):  # of programs that are refused PyTorch's results have their own type
        np.save(file, np.load(file).astype(np.float32))
    cell = look_at(executor, case)
    assert (cell.outcome, cell.right) == (outcome, right), cell
