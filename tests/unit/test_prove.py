"""Proofs: what the program says, the names of kernels, and the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import BuildError, ConfigError
from core.paths import ROOT
from toolchains.emulation import emulators, platforms
from toolchains.targets import get_target, load_targets
from verify.kernels import names as kernels
from verify.prove import proof, prove
from verify.prove import table as prove_table
from verify.prove.proof import CaseResult, Proofs, Row

REPORT = {
    "schema_version": 1,
    "xnnpack": {"version": "cci.20241108", "build_identifier": "ab"},
    "kleidiai": "",
    "cpu": {"name": "", "features": ["neon"]},
    "passed": True,
    "cases": [
        {
            "name": "fc_f32_m1_k67_n33", "op": "fully_connected", "dtype": "f32", "shape": "m1_k67_n33",
            "outcome": "passed", "status": "success", "why": "", "max_error": 1e-8, "tolerance": 4e-7,
            "operators": ["Fully Connected (NC, F32) GEMM"], "samples": {},
        }
    ],
}  # fmt: skip


def row(cpu: str, cases: dict[str, CaseResult], **more: str) -> Row:
    return Row(
        target="linux-arm64", cpu=cpu, how="qemu", outcome="passed", kernels_by="translation", cases=cases, **more
    )


def test_a_report_is_checked() -> None:
    report = proof.parse_report(json.dumps(REPORT), Path("xnnpack_proof"))
    assert report.cases[0].max_error == 1e-8
    wrongs: list[dict[str, object]] = [{"passed": False}, {"cases": []}, {"surprise": 1}]
    for wrong in wrongs:
        with pytest.raises(BuildError):
            proof.parse_report(json.dumps({**REPORT, **wrong}), Path("xnnpack_proof"))
    with pytest.raises(BuildError):
        proof.parse_report("Segmentation fault", Path("xnnpack_proof"))


@pytest.mark.parametrize(
    ("symbol", "is_one"),
    [
        ("xnn_f32_gemm_minmax_ukernel_4x8__asm_aarch32_neon_cortex_a7", True),
        ("xnn_qs8_rsum_ukernel__scalar_imagic_u4", True),
        ("kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod", True),
        ("kai_get_m_step_matmul_clamp_f32_qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod", False),
        ("xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2_get_mr", False),
        ("xnn_init_qp8_f32_qc4w_gemm_config", False),
        ("memcpy", False),
    ],
)
def test_kernels_are_told_from_other_functions(symbol: str, is_one: bool) -> None:
    assert kernels.is_kernel(symbol) is is_one


def test_translated_kernels_come_from_the_emulators_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "----------------\nIN: main\n0x1:  e3a00001  mov r0, #1\n\n----------------\n"
        "IN: xnn_f32_vadd_ukernel__neon_u8\n0x2: ...\n----------------\nIN: \n0x3: ...\n"
        "IN: xnn_f32_vadd_ukernel__neon_u8\n"
    )
    assert kernels.translated(log) == ("xnn_f32_vadd_ukernel__neon_u8",)


def test_samples_are_named_by_the_symbol_that_holds_them() -> None:
    symbols = kernels.Symbols(
        [(0x100, 0x20, "xnn_f32_vadd_ukernel__a"), (0x200, 0, "xnn_f32_vmul_ukernel__asm"), (0x300, 8, "main")]
    )
    assert symbols.at(0xFF) == ""
    assert symbols.at(0x11F) == "xnn_f32_vadd_ukernel__a"
    assert symbols.at(0x120) == ""
    assert symbols.at(0x2FF) == "xnn_f32_vmul_ukernel__asm"
    samples = {"0x100": 1, "0x11f": 1, "0x2f0": 1, "0x300": 9}
    assert kernels.sampled(samples, symbols) == ("xnn_f32_vadd_ukernel__a",)


@pytest.mark.parametrize(
    ("case", "column"),
    [
        ("fc_f32_m1_k67_n33", "fully connected f32"),
        ("fc_f16_hint_m9_k67_n33", "fully connected f16_hint"),
        ("fc_qd8_qb4w_m9_k128_n41_b64", "fully connected qd8_qb4w"),
        ("fc_qd8_qc4w_m9_k96_n41_signed", "fully connected qd8_qc4w"),
        ("conv_qs8_qc8w_3x3s2_c3_o17", "convolution qs8_qc8w"),
        ("conv_f32_3x3g2_c10_o14", "convolution f32"),
        ("dwconv_f16_force_3x3_c35", "convolution f16_force"),
        ("softmax_f32_m12_n1000", "softmax f32"),
    ],
)
def test_a_case_belongs_to_a_column(case: str, column: str) -> None:
    assert prove_table.column(case) == column


def test_the_table_says_passed_failed_and_why_not() -> None:
    good, bad = CaseResult(outcome="passed"), CaseResult(outcome="failed", why="off")
    refused = CaseResult(outcome="unsupported", why="no half-precision arithmetic")
    rows = (
        row("cortex-a53", {"fc_f32_m1_k1_n1": good, "fc_f32_m2_k1_n1": good, "softmax_f16_force_m1_n2": refused}),
        row("max", {"fc_f32_m1_k1_n1": good, "fc_f32_m2_k1_n1": bad, "softmax_f16_force_m1_n2": good}),
        Row(target="ios-arm64", cpu="", how="", outcome="not run", why="needs a Mac"),
    )
    text = prove_table.markdown(Proofs(rows=rows))
    assert "| linux-arm64 | cortex-a53 | 2 |" in text
    assert "| linux-arm64 | max | **1 of 2 failed** |" in text
    assert "| linux-arm64 | cortex-a53 | not run (1) |\n| linux-arm64 | max | 1 |\n\n(1) no half-precision" in text
    assert "| ios-arm64 | any | needs a Mac | nothing |" in text
    assert "| macos-arm64 | any | not built when this table was made | nothing |" in text


def test_the_table_names_kernels_and_counts_kleidiais() -> None:
    result = CaseResult(outcome="passed", kernels=("kai_run_matmul_x", "xnn_qp8_ukernel_1x8__neondot"))
    text = prove_table.markdown(Proofs(rows=(row("max", {"fc_qp8_qc4w_m1_k1_n1": result}, kleidiai="1.19.0"),)))
    assert "<summary>linux-arm64 on max: 1 functions of KleidiAI 1.19.0</summary>" in text
    assert "| fully connected qp8_qc4w | `kai_run_matmul_x`, `xnn_qp8_ukernel_1x8__neondot` |" in text
    bare = prove_table.markdown(Proofs(rows=(row("cortex-a53", {"fc_f32_m1_k1_n1": CaseResult(outcome="passed")}),)))
    assert "on cortex-a53: without KleidiAI" in bare


def test_cpu_models_that_ran_the_same_kernels_share_a_table() -> None:
    some, other = (
        {"fc_f32_m1_k1_n1": CaseResult(outcome="passed", kernels=(f"xnn_f32_{name}",))} for name in ("neon", "scalar")
    )
    newer = row("sme2", some).model_copy(update={"features": ("sme2",)})
    rows = (row("cortex-a53", some), row("cortex-a72", some), row("max", other), newer)
    text = prove_table.markdown(Proofs(rows=rows))
    heads = [line for line in text.splitlines() if line.startswith("<summary>")]
    models = ["cortex-a53, linux-arm64 on cortex-a72", "max", "sme2"]
    assert heads == [f"<summary>linux-arm64 on {names}: without KleidiAI</summary>" for names in models]
    assert text.count("`xnn_f32_neon`") == 2
    assert text.count("`xnn_f32_scalar`") == 1


def test_new_results_replace_those_of_the_same_cpu_only() -> None:
    old = Proofs(rows=(row("cortex-a53", {}), Row(target="linux-x86", cpu="", how="", outcome="not run")))
    new = old.updated([row("cortex-a53", {}, why="again"), row("max", {})])
    assert [(item.cpu, item.why) for item in new.rows] == [("cortex-a53", "again"), ("", ""), ("max", "")]
    built = new.updated([Row(target="linux-x86", cpu="Haswell", how="", outcome="passed")])
    assert [item.cpu for item in built.rows if item.target == "linux-x86"] == ["Haswell"]


def test_every_target_has_somewhere_to_run_or_says_why_not() -> None:
    for name, target in load_targets().items():
        wanted = platforms.cpus(target)
        assert wanted or target.os in ("macos", "ios") or name == "windows-arm64", name
        assert target.qemu_cpu in wanted or not target.qemu
    assert "sme2" in emulators.cpus(get_target("android-arm64"))
    assert "sme2" not in emulators.cpus(get_target("linux-armv7"))


def test_a_cpu_that_the_target_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="cortex-a53"):
        prove.prove("linux-arm64", "pentium3")


def test_what_the_docs_say_was_computed_by_the_programs_of_today() -> None:
    """Every case of the table is one the program has; none is missing."""
    source = (ROOT / "runtime/proof/cases.cpp").read_text(encoding="utf-8")
    kept = proof.load(ROOT / "docs/data/native.json")
    count = sum(source.count(f"      {maker}Case(") for maker in ("Float", "Static", "Dynamic", "Softmax"))
    for item in kept.rows:
        assert len(item.cases) in (0, count), f"{item.target} on {item.cpu}: ./inv prove --docs"
        assert item.outcome != "failed", f"{item.target} on {item.cpu}"
