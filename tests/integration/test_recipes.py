"""The recipes, each by its program of the test package, whose answers are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from core.files import locked
from core.formats.bundle import Native
from core.paths import ROOT
from tests.support.processes import ran
from toolchains.bundle import conan, conan_packages
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = pytest.mark.build

SAID = {
    "fxdiv/cci.20200417": "fxdiv: 63 divisions, 0 wrong",
    "pthreadpool/cci.20251020": "pthreadpool: four threads, every index once",
    "cpuinfo/cci.20250905": "cpuinfo: ",
    "xnnpack/cci.20241108": "xnnpack: four rows through a layer",
}
RECIPES = ROOT / "recipes"
TESTS = RECIPES / "slipway_sources" / "test_package"
FLATBUFFERS = "23.5.26"


def run_conan(words: Sequence[str | Path], target_name: str, folder: Path, *more: str) -> str:
    """Conan with a target's profile, its test package built in ``folder``; what it and the program said."""
    log = folder / "conan.log"
    with locked(conan.LOCK):
        host, own = conan.profile(get_target(target_name)), conan.build_profile()
        common = [f"--profile:host={host}", f"--profile:build={own}", f"--lockfile={conan.lockfile(log)}"]
        common += ["--lockfile-partial", f"--remote={conan.remote()}", *(more or conan.sources("debian", log))]
        common += [f"--conf=tools.cmake.cmake_layout:test_folder={folder}"]
        common += ["--conf=tools.cmake.cmaketoolchain:user_presets="]
        conan.conan([*words, *common], log=log)
    return log.read_text(encoding="utf-8")


def run_test_package(reference: str, target_name: str, folder: Path) -> str:
    return run_conan(["test", TESTS, reference], target_name, folder)


def create(name: str, version: str, target_name: str, folder: Path) -> str:
    """``conan create`` with the test package."""
    with conan_packages.building():
        words: list[str | Path] = ["create", RECIPES / name / "all", f"--version={version}", f"--test-folder={TESTS}"]
        return run_conan(words, target_name, folder, "--build=missing")


@pytest.mark.parametrize("reference", SAID)
def test_it_does_what_it_is_for(reference: str, native_packages: Callable[[str], Native], tmp_path: Path) -> None:
    native_packages("linux-x86_64")
    said = run_test_package(reference, "linux-x86_64", tmp_path)
    assert any(line.startswith(SAID[reference]) for line in said.splitlines())


def test_kleidiai_quantizes_on_an_emulated_cpu(native_packages: Callable[[str], Native], tmp_path: Path) -> None:
    native_packages("linux-arm64")
    run_test_package("kleidiai/1.32.0", "linux-arm64", tmp_path)
    (program,) = (file for file in tmp_path.rglob("test_package") if file.is_file())
    target = get_target("linux-arm64")
    done = ran([*emulators.user_argv(target, sysroot=sysroot(target)), str(program)], timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "kleidiai: 32 numbers quantized, 0 wrong"), done.stderr


def test_doctest_tells_a_right_sum_from_a_wrong_one(tmp_path: Path) -> None:
    said = create("doctest", "2.4.11", "linux-x86_64", tmp_path)
    assert "doctest: a right sum passes, a wrong one fails" in said


@pytest.mark.parametrize("target_name", ["linux-x86_64", "linux-arm64"])
def test_flatbuffers_headers_serve_the_target_and_flatc_the_machine_that_builds(
    target_name: str, tmp_path: Path
) -> None:
    said = create("flatbuffers", FLATBUFFERS, target_name, tmp_path)
    assert "Generating point_generated.h" in said
    assert ("flatbuffers: written, verified, read" in said) is (target_name == "linux-x86_64")
    assert list(tmp_path.rglob("point_generated.h"))
