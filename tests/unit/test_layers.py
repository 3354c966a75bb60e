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


def way(name: str, kernel: str, p50: float | None, counts: tuple[int, int, int] | None = None) -> Way:
    timed = {} if p50 is None else {"p50": p50, "processes": (p50,) * 5}
    counted = dict(zip(("least", "median", "most", "executions"), (*counts, 5), strict=True)) if counts else None
    return Way.model_validate(
        {"name": name, "engine": "lean", "verdict": "agrees", **timed, "instructions": counted,
         "kernels": (Used(node="n", kernel=kernel, library="KleidiAI" if "kai" in kernel else "XNNPACK"),)}
    )  # fmt: skip


def lab(*, emulated: bool, counted: bool = False) -> Lab:
    """A cell that was measured, and one that is impossible."""
    times = (None, None) if emulated else (0.5, 1.0)
    counts = ((10_000, 10_000, 10_000), (41_234, 41_250, 41_300)) if counted else (None, None)
    about = {
        "device": "pi", "emulated": emulated, "target": "linux-arm64", "layer": "linear", "scheme": "fp32",
        "type": "pf32",
    }  # fmt: skip
    measured = {
        **about, "key": "a/linear-fp32", "outcome": "measured",
        "first": way("KleidiAI", "kai_run_matmul_clamp_f32_x", times[0], counts[0]),
        "second": way("without KleidiAI", "xnn_f32_gemm_minmax_ukernel_6x8__neon", times[1], counts[1]),
        **({} if emulated else {"ratio": 0.5, "low": 0.4, "high": 0.6, "p": 0.008, "compared": "faster"}),
        **({"instructions": 10_000 / 41_234} if counted else {}),
    }  # fmt: skip
    impossible = {**about, "key": "b", "outcome": "impossible", "why_not": "no such thing"}
    return Lab(
        name="x", created="now", finished="later", against="with, and without", rounds=5, threads=1,
        cells=(LayerCell.model_validate(measured), LayerCell.model_validate(impossible)),
    )  # fmt: skip


def test_the_reports_have_every_cell_and_times_of_real_devices_alone(tmp_path: Path) -> None:
    found = lab(emulated=False)
    report.write(found, tmp_path)
    assert report.load(tmp_path) == found
    text = (tmp_path / report.MARKDOWN).read_text()
    for part in ("| 0.5 | 1 | 0.500 [0.400, 0.600] | faster |", "KleidiAI f32_x", "no such thing"):
        assert part in text
    assert report.summary(found) == "1 measured: 1 faster, 0 slower, 0 without a difference seen; 1 impossible"
    report.write(lab(emulated=True), tmp_path)
    text = (tmp_path / report.MARKDOWN).read_text()
    assert "p50 ms" not in text and "instructions" not in text and "| other kernels |" in text
    report.write(lab(emulated=True, counted=True), tmp_path)
    text = (tmp_path / report.MARKDOWN).read_text()
    assert "| 10,000 | 41,234 | 0.243 |" in text and "Instructions are not time" in text


def test_the_docs_keep_what_was_counted_and_nothing_with_a_hole(empty_tables: None) -> None:
    report.keep(lab(emulated=True, counted=True))
    text = report.LAB.text()
    assert "| pi | linear | pf32 | KleidiAI `f32_x` | `f32_gemm_6x8__neon` | agrees | 10,000 | 41,234 | 0.24 |" in text
    for holed in (lab(emulated=True), lab(emulated=False)):
        with pytest.raises(ConfigError, match="1 cells have no instructions: a/linear-fp32"):
            report.keep(holed)
    assert report.LAB.text() == text


def test_wrong_outputs_are_no_victory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lab(emulated=False)
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
