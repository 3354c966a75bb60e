"""Selective bundles: what they are called, what Conan is told, what may not be in a name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from core.errors import NotSupportedError, UsageError
from core.paths import ROOT
from toolchains.bundle import builder
from toolchains.bundle.selection import Selection, select


def test_the_same_programs_give_the_same_selection() -> None:
    first = select(["mlp-fp32"], ["aten::mul.out", "aten::add.out", "aten::mul.out"], ["XnnpackBackend"])
    assert first == select(["mlp-fp32"], ["aten::add.out", "aten::mul.out"], ["XnnpackBackend"] * 2)
    assert first.name == "mlp-fp32"
    assert first.options == ("operators=aten/add.out+aten/mul.out", "backends=XnnpackBackend", "types=all")


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(UsageError, match="is not an operator"):
        select(["a"], ["aten::add;rm"], [])
    with pytest.raises(UsageError, match="does not name a program"):
        select([], [], [])


def test_upstreams_engine_has_no_selective_bundles() -> None:
    with pytest.raises(NotSupportedError, match="for some programs only"):
        builder.build("linux-arm64", "executorch", selection=Selection(("a",), (), ()))


def test_types_are_an_option_of_the_recipe() -> None:
    chosen = select(["a"], [], ["XnnpackBackend"], ["xnnpack::qs8_layers", "xnnpack::f32", "xnnpack::f32"])
    assert chosen.options[2] == "types=xnnpack/f32+xnnpack/qs8_layers"
    with pytest.raises(UsageError, match="is not an operator"):
        select(["a"], [], ["XnnpackBackend"], ["xnnpack::f32 -x"])


@pytest.fixture(scope="module")
def needed() -> Callable[[str, set[str]], bool]:
    """The rule of conanfile.py, which is not a module of ours."""
    spec = importlib.util.spec_from_file_location("recipe", ROOT / "conanfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rule: Callable[[str, set[str]], bool] = lambda name, types: module.needed(name, module.with_conversions(types))  # noqa: E731
    return rule


@pytest.mark.parametrize(
    ("name", "kept_for", "left_out_for"),
    [
        ("f32_gemm_config", {"f32_layers"}, {"f32", "qs8_layers"}),
        ("f32_gemm_config", {"f16", "f16_layers"}, {"f16"}),  # processors without arithmetic for float16
        ("f32_vadd_config", {"qs8"}, set()),
        ("f16_vadd_config", {"f16"}, {"f32", "f32_layers"}),
        ("pf32_gemm_config", {"f32_layers"}, {"qs8_layers"}),
        ("qs8_qc8w_gemm_config", {"qs8_layers"}, {"qs8", "qd8_f32_qc8w_layers"}),
        ("qs8_qc8w_dwconv_config", {"qs8_layers"}, {"qd8_f32_qc8w_layers"}),
        ("qs8_vadd_config", {"qs8"}, {"qd8", "qu8"}),
        ("s8_maxpool_config", {"qs8"}, {"qu8"}),
        ("u8_maxpool_config", {"qu8"}, {"qs8"}),
        ("f32_to_qs8_cvt_config", {"qd8"}, {"f32"}),
        ("f32_to_qs8_cvt_config", {"qs8"}, {"qu8"}),
        ("f32_to_f16_cvt_config", {"f16"}, {"qs8"}),
        ("qd8_f32_qc4w_gemm_config", {"qd8_f32_qc4w_layers"}, {"qd8_f32_qb4w_layers", "qd8"}),
        ("qp8_f32_qb4w_gemm_config", {"qd8_f32_qb4w_layers"}, {"qd8_f32_qc4w_layers"}),
        ("qd8_f32_qc8w_gemm_config", {"qd8_f16_qc8w_layers"}, {"qs8_layers"}),
        ("qd8_f32_qc8w_igemm_minmax_ukernel_5x16c8__avx512skx", {"qd8_f32_qc8w_layers"}, {"f32_layers"}),
        ("x8_lut_config", {"f32"}, set()),
    ],
)
def test_kernels_are_linked_for_the_types_that_a_program_has(
    needed: Callable[[str, set[str]], bool], name: str, kept_for: set[str], left_out_for: set[str]
) -> None:
    assert needed(name, kept_for)
    assert not left_out_for or not needed(name, left_out_for)


def test_what_has_an_unknown_name_stays(needed: Callable[[str, set[str]], bool]) -> None:
    assert needed("hardware_config", {"f32"})
    assert needed("bf16_f32_gemm_minmax_ukernel", {"f32"})
    assert not needed("f32_spmm_config", {"f32", "f32_layers"}), "sparse layers are never made"
