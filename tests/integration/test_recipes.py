"""The packages that XNNPACK needs, each by its own test package: built against it, run, its answers checked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from core.files import locked
from core.formats.bundle import Native
from core.paths import ROOT
from toolchains.bundle import conan
from toolchains.compilers.sysroot import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = pytest.mark.build

SAID = {
    "fxdiv/cci.20200417": "fxdiv: 63 divisions, 0 wrong",
    "pthreadpool/cci.20251020": "pthreadpool: four threads, every index once",
    "cpuinfo/cci.20250905": "cpuinfo: ",
    "xnnpack/cci.20241108": "xnnpack: four rows through a layer",
}


def run_test_package(reference: str, target_name: str, folder: Path) -> str:
    """``conan test`` of the recipe's own test package, built in ``folder``; what Conan and the program said."""
    log = folder / "conan.log"
    recipe = ROOT / "recipes" / reference.partition("/")[0] / "all" / "test_package"
    with locked(conan.LOCK):
        host, own = conan.profile(get_target(target_name)), conan.build_profile()
        words = [f"--profile:host={host}", f"--profile:build={own}", f"--lockfile={conan.lockfile(log)}"]
        words += ["--lockfile-partial", f"--remote={conan.remote()}", *conan.sources("debian", log)]
        words += [f"--conf=tools.cmake.cmake_layout:test_folder={folder}"]
        words += ["--conf=tools.cmake.cmaketoolchain:user_presets="]
        conan.conan(["test", recipe, reference, *words], log=log)
    return log.read_text(encoding="utf-8")


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
    argv = [*emulators.user_argv(target, sysroot=sysroot(target)), str(program)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "kleidiai: 32 numbers quantized, 0 wrong"), done.stderr
