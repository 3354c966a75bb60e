"""The checks on what compilers really leave: code planted in C, for every format, machine and kind of kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from core.errors import BuildError
from toolchains.compilers import zig
from toolchains.inspect import checks
from toolchains.targets import get_target

pytestmark = pytest.mark.build

PLAIN = "int plain(int a) { return a * 3; }\ndouble pool(double a) { return a * 1.2345678901234567; }\n"
AVX = """
#include <immintrin.h>
__attribute__((target("avx"))) void planted(float* x) {
  _mm256_storeu_ps(x, _mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)));
}
"""
KERNEL = """
#include <immintrin.h>
__attribute__((target("LEVEL"))) void xnn_f32_vadd_ukernel__NAME_u16(float* x) {
  _mm512_storeu_ps(x, _mm512_add_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
}
"""
DOTPROD = """
#include <arm_neon.h>
__attribute__((target("dotprod"))) void NAME(int32x4_t* x, int8x16_t a, int8x16_t b) { *x = vdotq_s32(*x, a, b); }
"""
KAI = "kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4cxp4x8_1x4x32_neon"


def run(*words: object) -> None:
    argv = [str(zig.program()), *map(str, words)]
    subprocess.run(argv, env={**os.environ, **zig.caches()}, check=True)


def cc(folder: Path, triple: str, code: str, *words: str, name: str = "source.c") -> Path:
    """Compile ``code`` for a target of zig's into an object file (or, by ``words``, more)."""
    source, result = folder / name, folder / f"{name}.o"
    source.write_text(code, encoding="utf-8")
    run("cc", "-target", triple, "-O2", "-g0", "-c", *words, source, "-o", result)
    return result


def native(folder: Path, *files: Path) -> Path:
    """``files`` as an archive in the folder of native packages."""
    product = folder / "native"
    (product / "lib").mkdir(parents=True)
    run("ar", "rc", product / "lib/libx.a", *files)
    return product


def refused(folder: Path, target: str, *files: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        checks.check_native(get_target(target), native(folder, *files))
    return caught.value


def triple(target: str) -> list[str]:
    row = get_target(target)
    return [row.zig_triple, *([f"-mcpu={row.zig_cpu}"] if row.zig_cpu else [])]


@pytest.mark.parametrize("target", ["linux-armv6", "android-arm64", "windows-x86", "macos-arm64"])
def test_plain_code_passes_everywhere(tmp_path: Path, target: str) -> None:
    name, *cpu = triple(target)
    found = checks.check_native(get_target(target), native(tmp_path, cc(tmp_path, name, PLAIN, *cpu)))
    assert found.code[0].functions == 2
    assert found.code[0].kernels == 0


@pytest.mark.parametrize("target", ["android-x86", "android-x86_64", "windows-x86_64", "macos-x86_64"])
def test_avx_outside_of_a_kernel_and_avx512_in_one_for_avx2(tmp_path: Path, target: str) -> None:
    """The kernel for AVX512 passes; the same code under the name of one for AVX2 does not."""
    name, *cpu = triple(target)
    codes = [AVX, *(KERNEL.replace("LEVEL", "avx512f").replace("NAME", level) for level in ("avx512f", "avx2"))]
    error = refused(tmp_path, target, *(cc(tmp_path, name, code, *cpu, name=f"{i}.c") for i, code in enumerate(codes)))
    assert set(error.names) == {"planted", "xnn_f32_vadd_ukernel__avx2_u16"}
    assert "needs AVX" in error.cause
    assert "needs AVX512F" in error.cause


@pytest.mark.parametrize("target", ["android-arm64", "windows-arm64"])
def test_dotprod_in_a_plain_function(tmp_path: Path, target: str) -> None:
    name = triple(target)[0]
    good = cc(tmp_path, name, DOTPROD.replace("NAME", f"{KAI}_dotprod"), name="good.c")
    bad = cc(tmp_path, name, DOTPROD.replace("NAME", "plain_sum"), name="bad.c")
    error = refused(tmp_path, target, good, bad)
    assert error.names == ("plain_sum",)
    assert "needs FEAT_DotProd" in error.cause
