"""Proofs: what the program says, the names of kernels, and the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import BuildError
from verify.prove import proof

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


def test_a_report_is_checked() -> None:
    report = proof.parse_report(json.dumps(REPORT), Path("xnnpack_proof"))
    assert report.cases[0].max_error == 1e-8
    wrongs: list[dict[str, object]] = [{"passed": False}, {"cases": []}, {"surprise": 1}]
    for wrong in wrongs:
        with pytest.raises(BuildError):
            proof.parse_report(json.dumps({**REPORT, **wrong}), Path("xnnpack_proof"))
    with pytest.raises(BuildError):
        proof.parse_report("Segmentation fault", Path("xnnpack_proof"))
