"""The C++ tests of runtime/, compiled as the bundles are, natively and under QEMU user mode."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.formats.bundle import REAL_RUNNER
from tests.support.processes import ran, well
from toolchains.bundle import builder
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target
from verify.suite.shared import compiled

pytestmark = pytest.mark.build

TESTS = "runtime_tests"
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


def said(argv: Sequence[str | Path], emulated: bool = False, **variables: str) -> str:
    """What C++ tests say that all pass. Under an emulator limits on memory are not kept, and they must know."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    env |= {"SLIPWAY_TESTS_NAMES": "1", **variables, **({"SLIPWAY_TESTS_EMULATED": "1"} if emulated else {})}
    return well(ran(argv, env=env, timeout=900)).stdout


def passed(argv: Sequence[str | Path], emulated: bool = False) -> int:
    """The number of tests, which all pass."""
    found = PASSED.search(summary := said(argv, emulated))
    assert found, summary[-3000:]
    return int(found[1])


@pytest.mark.parametrize("target_name", ["linux-x86_64", "linux-arm64"])
def test_the_cpp_tests_pass(target_name: str) -> None:
    target = get_target(target_name)
    (program,) = compiled(target, "executorch", TESTS)
    native = emulators.is_native(target)
    for cpu in ("",) if native else ("cortex-a53", "cortex-a76"):
        prefix = [] if native else emulators.user_argv(target, cpu, sysroot(target))
        assert passed([*prefix, program], not native) > 50


def test_the_cpp_tests_pass_with_lean() -> None:
    """Those of the engine itself: what it knows of delegates' graphs, against XNNPACK."""
    program, tails = compiled(get_target("linux-x86_64"), "lean", TESTS, "tail_tests")
    assert passed([program]) > 55
    all_of_them = said([tails])
    assert layers(all_of_them) > 28000
    for without in LESSER:
        lesser = said([tails], SLIPWAY_TESTS_TAILS="9", SLIPWAY_TESTS_WITHOUT=without)
        assert layers(lesser) > 3000, without
        all_of_them += lesser
    here = {*Path("/proc/cpuinfo").read_text(encoding="utf-8").split()}
    assert [name for feature, name in AVX512.items() if feature in here and f"__{name}" not in all_of_them] == []


def test_no_tail_is_wrong_on_arm() -> None:
    """A sample of layers and functions with the kernels that lean has here, XNNPACK's, KleidiAI's and ours."""
    target = get_target("linux-arm64")
    (program,) = compiled(target, "lean", "tail_tests")
    for cpu in ("cortex-a53", "max"):
        argv: list[str | Path] = [*emulators.user_argv(target, cpu, sysroot(target)), program]
        assert layers(said(argv, emulated=True, SLIPWAY_TESTS_TAILS="40")) > 700


def layers(summary: str) -> int:
    """The number of layers that were computed."""
    return sum(int(count) for count in LAYERS.findall(summary))


@pytest.mark.parametrize(("target_name", "cpu"), [("linux-x86_64", ""), ("linux-armv7", "cortex-a7")])
def test_the_cpp_tests_pass_with_onnxruntime(target_name: str, cpu: str) -> None:
    """Through the loader that the bundle brings: this machine's C library may be too old."""
    target = get_target(target_name)
    bundle = builder.build(target_name, engine="onnxruntime")
    (program,) = compiled(target, "onnxruntime", TESTS)
    loader = [str(program) if word.endswith(REAL_RUNNER) else word for word in bundle.emulated_argv]
    assert passed([*emulators.user_argv(target, cpu), *loader], not emulators.is_native(target)) > 50
