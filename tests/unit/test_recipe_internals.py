"""The recipe with XNNPACK's own headers: of the library that is linked, and what it reads out of the sources."""

from __future__ import annotations

import re

import yaml

from core.paths import ROOT

RECIPES = ROOT / "recipes"


def test_its_sources_are_the_librarys() -> None:
    pins = [
        yaml.safe_load((RECIPES / name / "all" / "conandata.yml").read_text(encoding="utf-8"))["sources"]
        for name in ("xnnpack", "xnnpack_internals", "xnnpack_sources")
    ]
    assert pins[0] == pins[1] == pins[2]


def test_what_is_compiled_with_sanitizers_has_the_librarys_patches() -> None:
    ours, librarys = (RECIPES / name / "all" for name in ("xnnpack_sources", "xnnpack"))
    data = [yaml.safe_load((folder / "conandata.yml").read_text(encoding="utf-8")) for folder in (ours, librarys)]
    assert data[0]["patches"] == data[1]["patches"]
    patches = [{file.name: file.read_bytes() for file in (folder / "patches").iterdir()} for folder in (ours, librarys)]
    assert patches[0] == patches[1] != {}


def test_a_wrapper_is_read_with_the_kernel_it_calls() -> None:
    text = (RECIPES / "xnnpack_internals" / "all" / "conanfile.py").read_text(encoding="utf-8")
    (pattern,) = re.findall(r'WRAPPED = re.compile\(r"(.*)", re.DOTALL\)', text)
    source = """
size_t xnn_x_gemm_ukernel_4x4__a_get_mr() { return kai_get_mr(); }
void xnn_x_gemm_ukernel_1x4__b(size_t m) { other(m); }
void xnn_x_gemm_ukernel_4x4__a(
    size_t m) {
#if ENABLED
  kai_run_matmul_four(m);
#endif
}
"""
    assert re.findall(pattern, source, re.DOTALL) == [("xnn_x_gemm_ukernel_4x4__a", "kai_run_matmul_four")]
