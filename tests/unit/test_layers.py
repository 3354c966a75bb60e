"""The lab: its layers and ways, and reports that say no more than was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.own import Lab as LabRequest
from core.errors import ConfigError, MatrixError, UsageError
from verify.layers import command, report
from verify.layers.command import check, planned
from verify.layers.model import Lab, LayerCell, Used, Way


def test_the_plan_says_what_is_impossible(tmp_path: Path) -> None:
    plan = planned(LabRequest(layers="linear,bmm", types="pf32,qp8_f32_qc8w"), tmp_path)
    assert [(cell.key, cell.outcome, cell.type) for cell in plan.cells] == [
        ("local/linear_32x256x256-fp32", "not run", "pf32"),
        ("local/linear_32x256x256-qd8_qc8w", "not run", "qp8_f32_qc8w"),
        ("local/bmm_32x64x64-fp32", "not run", "pf32"),
        ("local/bmm_32x64x64-qd8_qc8w", "impossible", "qp8_f32_qc8w"),
    ]
    assert len(plan.possible) == 3
    with pytest.raises(ConfigError, match="write no batched matrix product"):
        planned(LabRequest(layers="bmm", types="qs8"), tmp_path)
    with pytest.raises(ConfigError, match="did you mean pf32"):
        planned(LabRequest(types="pf33"), tmp_path)
    with pytest.raises(UsageError, match="--model cannot be used with --layers"):
        LabRequest(model="mlp", shape="1x2x3")


def way(name: str, kernel: str, p50: float) -> Way:
    return Way.model_validate(
        {"name": name, "engine": "lean", "verdict": "agrees", "p50": p50, "processes": (p50,) * 5,
         "kernels": (Used(node="n", kernel=kernel, library="KleidiAI" if "kai" in kernel else "XNNPACK"),)}
    )  # fmt: skip


def lab() -> Lab:
    """A cell that was measured, and one that is impossible."""
    about = {
        "device": "pi", "emulated": False, "target": "linux-arm64", "layer": "linear", "scheme": "fp32",
        "type": "pf32",
    }  # fmt: skip
    measured = {
        **about, "key": "a/linear-fp32", "outcome": "measured",
        "first": way("KleidiAI", "kai_run_matmul_clamp_f32_x", 0.5),
        "second": way("without KleidiAI", "xnn_f32_gemm_minmax_ukernel_6x8__neon", 1.0),
        "ratio": 0.5, "low": 0.4, "high": 0.6, "p": 0.008, "compared": "faster",
    }  # fmt: skip
    impossible = {**about, "key": "b", "outcome": "impossible", "why_not": "no such thing"}
    return Lab(
        name="x", created="now", finished="later", against="with, and without", rounds=5, threads=1,
        cells=(LayerCell.model_validate(measured), LayerCell.model_validate(impossible)),
    )  # fmt: skip


def test_wrong_outputs_are_no_victory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lab()
    check(found, tmp_path)  # nothing is wrong: it returns
    (cell, impossible) = found.cells
    assert cell.first is not None
    differs = cell.model_copy(update={"first": cell.first.model_copy(update={"verdict": "differs"})})
    wrong = found.model_copy(update={"cells": (differs, impossible)})
    assert differs.answer == "differs"
    assert "0 faster" in report.summary(wrong) and "1 with outputs that differ" in report.summary(wrong)
    printed: list[Lab] = []
    monkeypatch.setattr(command, "_fill", lambda *_: wrong)
    monkeypatch.setattr(command, "planned", lambda *_: None)
    monkeypatch.setattr(report, "printed", lambda found, *_: printed.append(found))
    with pytest.raises(MatrixError, match="outputs of KleidiAI differ") as raised:
        command.run(LabRequest(name="x"))
    assert (raised.value.exit_code, raised.value.names) == (33, (cell.key,))
    assert printed, "the report comes first"
    failed = cell.model_copy(update={"outcome": "failed", "first": None, "second": None})
    with pytest.raises(MatrixError, match="1 of 1 cells failed"):
        check(found.model_copy(update={"cells": (failed,)}), tmp_path)
