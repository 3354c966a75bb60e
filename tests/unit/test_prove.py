"""Proofs: what the program says, the names of kernels, and the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import BuildError
from verify.prove import proof
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
