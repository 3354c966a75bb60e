"""The checks on what compilers really leave: code planted in C, for every format, machine and kind of kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from core.errors import BuildError
from toolchains.compilers import zig
from toolchains.inspect import checks
from toolchains.inspect import needs as inspect
from toolchains.targets import get_target

pytestmark = pytest.mark.build

PLAIN = "int plain(int a) { return a * 3; }\n"
POOL = PLAIN + "double pool(double a) { return a * 1.2345678901234567; }\n"
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


def native(folder: Path, *files: Path, name: str = "libx.a") -> Path:
    """``files`` as an archive in the folder of native packages."""
    product = folder / "native"
    (product / "lib").mkdir(parents=True)
    run("ar", "rc", product / "lib" / name, *files)
    return product


def refused(folder: Path, target: str, *files: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        checks.check_native(get_target(target), native(folder, *files))
    return caught.value


def triple(target: str) -> list[str]:
    row = get_target(target)
    return [row.zig_triple, *([f"-mcpu={row.zig_cpu}"] if row.zig_cpu else [])]


@pytest.mark.parametrize(
    "target",
    ["linux-armv6", "android-arm64", "windows-x86", "macos-arm64"],
)
def test_plain_code_passes_everywhere(tmp_path: Path, target: str) -> None:
    name, *cpu = triple(target)
    found = checks.check_native(get_target(target), native(tmp_path, cc(tmp_path, name, POOL, *cpu)))
    assert found.code[0].functions == 2
    assert found.code[0].kernels == 0


@pytest.mark.parametrize("target", ["android-x86", "windows-x86_64", "macos-x86_64"])
def test_avx_outside_of_a_kernel(tmp_path: Path, target: str) -> None:
    name, *cpu = triple(target)
    error = refused(tmp_path, target, cc(tmp_path, name, AVX, *cpu))
    assert error.names == ("planted",)
    assert "needs AVX" in error.cause


@pytest.mark.parametrize("target", ["android-x86_64", "windows-x86_64", "macos-x86_64"])
def test_avx512_in_a_kernel_for_avx2(tmp_path: Path, target: str) -> None:
    """The kernel for AVX512 passes; the same code under the name of one for AVX2 does not."""
    name = triple(target)[0]
    kernels = [KERNEL.replace("LEVEL", "avx512f").replace("NAME", level) for level in ("avx512f", "avx2")]
    good, bad = (cc(tmp_path, name, code, name=f"{index}.c") for index, code in enumerate(kernels))
    error = refused(tmp_path, target, good, bad)
    assert error.names == ("xnn_f32_vadd_ukernel__avx2_u16",)
    assert "needs AVX512F" in error.cause


@pytest.mark.parametrize("target", ["android-arm64", "windows-arm64"])
def test_dotprod_in_a_plain_function(tmp_path: Path, target: str) -> None:
    name = triple(target)[0]
    good = cc(tmp_path, name, DOTPROD.replace("NAME", f"{KAI}_dotprod"), name="good.c")
    bad = cc(tmp_path, name, DOTPROD.replace("NAME", "plain_sum"), name="bad.c")
    error = refused(tmp_path, target, good, bad)
    assert error.names == ("plain_sum",)
    assert "needs FEAT_DotProd" in error.cause


@pytest.mark.parametrize(
    ("target", "triple", "code", "cpu", "said"),
    [
        ("android-arm64", "x86_64-linux-musl", PLAIN, "", "libx.a(source.c.o) is for x86_64, not aarch64"),
        ("linux-armv6", "arm-linux-musleabi", POOL, "-mcpu=arm1176jzf_s", "has the float ABI soft, not hard"),
        ("macos-x86_64", "x86_64-macos.14.0", PLAIN, "", "needs macos 14.0 (at most 10.15)"),
    ],
    ids=["another machine", "soft floats", "a newer Mac"],
)
def test_another_kind_of_system(tmp_path: Path, target: str, triple: str, code: str, cpu: str, said: str) -> None:
    assert said in refused(tmp_path, target, cc(tmp_path, triple, code, *([cpu] if cpu else []))).cause


def test_a_newer_glibc_than_promised(tmp_path: Path) -> None:
    """A program that asks for GLIBC_2.34, as everything linked against Debian 12's own library does."""
    product = tmp_path / "native"
    (product / "bin").mkdir(parents=True)
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    run(
        "cc", "-target", "x86_64-linux-gnu.2.34", "-g0", "-fno-sanitize=undefined", source, "-o", product / "bin/app"
    )  # fmt: skip
    with pytest.raises(BuildError, match=r"app needs GLIBC 2\.34 \(at most 2\.28\)"):
        checks.check_native(get_target("linux-x86_64"), product)


def test_a_foreign_dll(tmp_path: Path) -> None:
    source, names, library = tmp_path / "main.c", tmp_path / "foreign.def", tmp_path / "libforeign.a"
    source.write_text(
        "__declspec(dllimport) int foreign(void);\nint start(void) { return foreign(); }\n", encoding="utf-8"
    )
    names.write_text("LIBRARY foreign.dll\nEXPORTS\nforeign\n", encoding="utf-8")
    program = tmp_path / "app.exe"
    run("dlltool", "-m", "i386:x86-64", "-d", names, "-l", library)
    run("cc", "-target", "x86_64-windows-gnu", "-nostdlib", source, library, "-Wl,-e,start", "-o", program)
    (message,) = inspect.problems(get_target("windows-x86_64"), [inspect.read(program)])
    assert message.startswith("foreign.dll would have to be on the device")
