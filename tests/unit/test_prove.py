"""Proofs: what the program says, the names of kernels, and the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import BuildError, ConfigError
from core.paths import ROOT
from toolchains.emulation import emulators, platforms
from toolchains.targets import get_target, load_targets
from verify.prove import proof, prove
from verify.prove import table as prove_table
from verify.prove.proof import CaseResult, Row

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
    assert prove.is_kernel(symbol) is is_one


def test_kernels_come_from_logs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "----------------\nIN: main\n0x1:  e3a00001  mov r0, #1\n\n----------------\n"
        "IN: xnn_f32_vadd_ukernel__neon_u8\n0x2: ...\n----------------\nIN: \n0x3: ...\n"
        "IN: xnn_f32_vadd_ukernel__neon_u8\n"
    )
    assert prove.kernels_in(log) == ("xnn_f32_vadd_ukernel__neon_u8",)


def test_new_rows_replace_those_of_the_same_cpu_and_say_why_cases_did_not_run(empty_tables: None) -> None:
    good, refused = CaseResult(outcome="passed"), CaseResult(outcome="unsupported", why="no half-precision arithmetic")
    cases = {"fc_f32_m1_k1_n1": good, "fc_f32_m2_k1_n1": good, "softmax_f16_force_m1_n2": refused}
    unbuilt = Row(target="macos-arm64", cpu="", how="", outcome="not built")
    idle = Row(target="linux-x86", cpu="", how="", outcome="not run", why="needs an emulator")
    prove_table.publish([row("max", cases), idle, unbuilt])
    kai = {"fc_qp8_qc4w_m1_k1_n1": CaseResult(outcome="passed", kernels=("kai_run_matmul_x", "xnn_qp8_1x8"))}
    prove_table.publish([row("cortex-a53", cases), row("max", kai)])

    def table() -> list[tuple[str, ...]]:
        keys = ("target", "CPU", "cases passed", "KleidiAI's functions", "remark")
        return [tuple(one[key] for key in keys) for one in prove_table.PROOFS.rows()]

    why = "1 not run: no half-precision arithmetic"
    arm = [("linux-arm64", "max", "1 of 1", "1", ""), ("linux-arm64", "cortex-a53", "2 of 3", "0", why)]
    assert table() == [("linux-x86", "any", "not run", "", "needs an emulator"), *arm]
    prove_table.publish([Row(target="linux-x86", cpu="Haswell", how="", outcome="passed", cases={"fc_f32_m1": good})])
    assert [one[1] for one in table() if one[0] == "linux-x86"] == ["Haswell"], "something runs them now"
    assert "| Haswell |" in prove_table.targets_markdown()
    bad = CaseResult(outcome="failed", why="off")
    prove_table.publish([row("max", {"fc_f32_m1_k1_n1": good, "fc_f32_m2_k1_n1": bad})])
    assert ("linux-arm64", "max", "1 of 2", "0", "1 failed") in table()
    assert "| cortex-a53 |" in prove_table.targets_markdown(), "what failed is no proof"


def test_every_target_has_somewhere_to_run_or_says_why_not() -> None:
    for name, target in load_targets().items():
        wanted = platforms.cpus(target)
        assert wanted or target.os in ("macos", "ios") or name == "windows-arm64", name
        assert target.qemu_cpu in wanted or not target.qemu
    assert "sme2" in emulators.cpus(get_target("android-arm64"))
    assert "sme2" not in emulators.cpus(get_target("linux-armv7"))
    with pytest.raises(ConfigError, match="cortex-a53"):
        prove.prove("linux-arm64", "pentium3")


def test_what_the_docs_say_was_computed_by_the_programs_of_today() -> None:
    source = (ROOT / "runtime/proof/cases.cpp").read_text(encoding="utf-8")
    count = sum(source.count(f"      {maker}Case(") for maker in ("Float", "Static", "Dynamic", "Softmax"))
    for item in prove_table.PROOFS.rows():
        assert item["cases passed"] == "not run" or item["cases passed"].endswith(f" of {count}"), item
        not_run = int(item["remark"].partition(" not run")[0] or 0) if item["CPU"] != "any" else count
        assert item["CPU"] == "any" or int(item["cases passed"].split()[0]) + not_run == count, item
