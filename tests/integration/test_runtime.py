"""The C++ tests of runtime/, compiled as the bundles are, natively and under QEMU user mode."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from core.formats.bundle import REAL_RUNNER
from core.paths import ROOT, cache_dir, dist_dir
from tests.support.processes import ran
from toolchains import tools
from toolchains.bundle import builder, conan, conan_packages
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = pytest.mark.build

PASSED = re.compile(r"test cases: +\d+ +\| +(\d+) passed \| 0 failed \| 0 skipped")
"""doctest's summary of a run in which nothing failed; the number of tests."""

LAYERS = re.compile(r"^(\d+) layers$", re.MULTILINE)
LESSER = [
    *("amx_int8", "gfni", "avx512_vnni", "avx512bw", "avx512f", "avx512f,avx_vnni"),
    *("avx2", "avx", "sse4_1", "ssse3"),
]
"""What lesser processors of this kind lack; a processor that has none of it computes the same ten times."""
AVX512 = {
    "avx512f": "avx512f", "avx512bw": "avx512skx", "avx512_vnni": "avx512vnni", "avx512_fp16": "avx512fp16",
}  # fmt: skip
"""Features by the names of ``/proc/cpuinfo``, and what kernels that need them have in their names."""


def compile_tests(target_name: str, engine: str = "executorch", *programs: str) -> Path:
    """Configure runtime/ as the bundle's build does and compile these, or ``runtime_tests``; the first one's path.

    From a copy of the sources next to the build's folder, as in Conan's cache: by the same relative paths ccache finds
    what the bundle's build compiled.
    """
    folder = dist_dir() / "tests" / f"runtime-{target_name}-{engine}"
    wanted = programs or ("runtime_tests",)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "runtime", folder / "runtime")
    shutil.copy2(ROOT / "conanfile.py", folder)
    log = cache_dir("logs") / f"test-runtime-{target_name}-{engine}.log"
    target = get_target(target_name)
    with conan_packages.building():
        words = [*conan_packages.words(target, "", log), f"--options=slipway-runtime/*:engine={engine}"]
        extra = [f"--output-folder={folder}", "--conf=tools.cmake.cmaketoolchain:user_presets="]
        conan.conan(["build", folder, *words, *extra, "--build=missing"], log=log)
    build = next(folder.rglob("CMakeCache.txt")).parent
    argv = [tools.program("cmake"), "--build", str(build), "--target", *wanted]
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(tools.program("ninja")).parent), os.environ["PATH"]])}
    done = ran(argv, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return build / "tests" / wanted[0]


def environment(native: bool) -> dict[str, str]:
    """What the C++ tests start with: under an emulator, limits on memory are not kept, and they must know."""
    emulated = {} if native else {"SLIPWAY_TESTS_EMULATED": "1"}
    return {**os.environ, **emulated}


@pytest.mark.parametrize("target_name", ["linux-x86_64", "linux-arm64"])
def test_the_cpp_tests_pass(target_name: str) -> None:
    target = get_target(target_name)
    program = compile_tests(target_name)
    native = emulators.is_native(target)
    for cpu in ("",) if native else ("cortex-a53", "cortex-a76"):
        prefix = [] if native else emulators.user_argv(target, cpu, sysroot(target))
        env = {name: value for name, value in environment(native).items() if not name.startswith("LD_")}
        done = ran([*prefix, program], env=env, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found = PASSED.search(done.stdout)
        assert found
        assert int(found[1]) > 50


def test_the_cpp_tests_pass_with_lean() -> None:
    """Those of the engine itself: what it knows of delegates' graphs, against XNNPACK."""
    program = compile_tests("linux-x86_64", "lean", "runtime_tests", "tail_tests")
    done = ran([program], timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = PASSED.search(done.stdout)
    assert found
    assert int(found[1]) > 55
    tails = program.with_name("tail_tests")
    said = run_tails([tails])
    assert layers(said) > 28000
    for without in LESSER:
        lesser = run_tails([tails], SLIPWAY_TESTS_TAILS="9", SLIPWAY_TESTS_WITHOUT=without)
        assert layers(lesser) > 3000
        said += lesser
    here = {*Path("/proc/cpuinfo").read_text(encoding="utf-8").split()}
    assert [name for feature, name in AVX512.items() if feature in here and f"__{name}" not in said] == []


def test_no_tail_is_wrong_on_arm() -> None:
    """A sample of layers and functions with the kernels that lean has here, XNNPACK's, KleidiAI's and ours."""
    target = get_target("linux-arm64")
    program = compile_tests("linux-arm64", "lean", "tail_tests")
    for cpu in ("cortex-a53", "max"):
        argv: list[str | Path] = [*emulators.user_argv(target, cpu, sysroot(target)), program]
        assert layers(run_tails(argv, SLIPWAY_TESTS_TAILS="40", SLIPWAY_TESTS_EMULATED="1")) > 700


def run_tails(argv: list[str | Path], **variables: str) -> str:
    """What they say: all layers that they computed are right."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    env |= {"SLIPWAY_TESTS_NAMES": "1", **variables}
    done = ran(argv, env=env, timeout=600)
    assert done.returncode == 0, f"{variables}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def layers(said: str) -> int:
    """The number of layers that were computed."""
    return sum(int(count) for count in LAYERS.findall(said))


@pytest.mark.parametrize(("target_name", "cpu"), [("linux-x86_64", ""), ("linux-armv7", "cortex-a7")])
def test_the_cpp_tests_pass_with_onnxruntime(target_name: str, cpu: str) -> None:
    """Through the loader that the bundle brings: this machine's C library may be too old."""
    target = get_target(target_name)
    bundle = builder.build(target_name, engine="onnxruntime")
    program = compile_tests(target_name, "onnxruntime")
    native = emulators.is_native(target)
    prefix = [] if native else emulators.user_argv(target, cpu)
    loader = [str(program) if word.endswith(REAL_RUNNER) else word for word in bundle.emulated_argv]
    env = environment(native)
    done = ran([*prefix, *loader], env=env, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = PASSED.search(done.stdout)
    assert found
    assert int(found[1]) > 50
