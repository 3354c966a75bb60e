"""Sweeps: cells that are kept as they come, what a killed process leaves; who is right, beside upstream's runtime."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

from commands.own import Agree
from core import environment
from core.errors import MismatchError
from core.formats.program import Tolerance
from core.paths import dist_part
from core.processes.sweep import Cell, Journal, sweep
from tests.support.processes import executable
from toolchains.emulation.platforms import Platform
from toolchains.targets import get_target
from verify.agree import agree, sound
from verify.agree import kept as agree_kept
from verify.agree import look as agree_look
from verify.agree.look import Executor
from verify.agree.programs import INFINITE, About, Compared
from verify.agree.programs import Cell as Shown
from verify.fuzz import Part, attempt, report


class Number(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    value: int


def journal() -> Journal[Number]:
    """As another process reads it."""
    return Journal.of("numbers", Number)


class Work:
    """Cells that count how often they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails = ""

    def cells(self, *names: str, key: str = "k") -> list[Cell[Number]]:
        return [Cell(name, key, self._work(name)) for name in names]

    def _work(self, name: str) -> Callable[[], Number]:
        def work() -> Number:
            if name == self.fails:
                raise KeyboardInterrupt
            self.ran.append(name)
            return Number(value=len(name))

        return work


@pytest.mark.parametrize("jobs", [1, 3])
def test_cells_run_once_and_again_when_something_changed(jobs: int) -> None:
    work = Work()
    first = sweep("counting", work.cells("a", "bb", "ccc"), journal(), jobs=jobs)
    assert {name: found.value for name, found in first.items()} == {"a": 1, "bb": 2, "ccc": 3}
    assert list(first) == ["a", "bb", "ccc"]
    assert sweep("counting", work.cells("a", "bb", "ccc"), journal(), jobs=jobs) == first
    assert sorted(work.ran) == ["a", "bb", "ccc"]
    sweep("counting", [*work.cells("a"), *work.cells("bb", key="another")], journal(), jobs=jobs)
    assert work.ran[3:] == ["bb"]
    sweep("counting", work.cells("a", "ccc"), journal(), jobs=jobs, holds=lambda found: found.value > 1)
    assert work.ran[4:] == ["a"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_finished_before_an_interruption_is_kept(jobs: int) -> None:
    work = Work()
    work.fails = "c"
    with pytest.raises(KeyboardInterrupt):
        sweep("counting", work.cells("a", "b", "c"), journal(), jobs=jobs)
    work.fails = ""
    kept = len(dict(journal().all()))
    before = len(work.ran)
    sweep("counting", work.cells("a", "b", "c"), journal(), jobs=jobs)
    assert len(work.ran) - before == 3 - kept
    if jobs == 1:
        assert kept == 2


def test_half_a_line_costs_one_cell() -> None:
    work = Work()
    sweep("counting", work.cells("a", "b"), journal())
    file = dist_part("sweeps") / "numbers.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    sweep("counting", work.cells("a", "b"), journal())
    assert work.ran == ["a", "b", "b"]
    assert {name: one.value for name, one in journal().all()} == {"a": 1, "b": 1}


@pytest.fixture
def part(tmp_path: Path) -> Part:
    """Of a program that a script tries."""
    finding = {"patch": 7, "path": "a.b", "was": "1", "now": "2", "outcome": "crashed", "report": "signal 11 at (nil)"}
    last = {"fields": 3, "patches": 30, "tried": 30, "sums": {"crashed": 1, "ran": 9, "loaded": 2, "refused-3": 18}}
    script = f"#!/bin/sh\ncat <<'END'\n{json.dumps(finding)}\n{json.dumps(last)}\nEND\n"
    tool = executable(tmp_path / "sweep_program", script)
    file = tmp_path / "model.pte"
    file.write_bytes(b"program")
    return Part(tool, "mlp-fp32", file, 0, 30)


def test_a_finding_fails_the_command_and_is_told(part: Part, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MismatchError, match="1 changed programs") as caught:
        report([(part, attempt(part))])
    assert "--first=7 --count=1" in caught.value.hint
    assert list(caught.value.names) == ["mlp-fp32: a.b 1 -> 2"]
    assert "mlp-fp32 30 18 11 1" in " ".join(capsys.readouterr().out.split())


def test_a_sweep_that_ends_by_itself_is_no_success(part: Part) -> None:
    part.tool.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(MismatchError, match="ended by itself"):
        attempt(part)


def test_what_the_docs_say_is_missing_is_known() -> None:
    said = "Method forward needs {} this runner does not have: {}."
    for operators, known in (
        ("aten::_fft_r2c.out, aten::abs.out of complex64", True), ("aten::abs.out", False),
        ("aten::_fft_r2c.out, aten::add.out", False),
    ):  # fmt: skip
        assert sound.documented(said.format("operators", operators)) is known
    assert not sound.documented("in0.npy holds elements of type '>f4'.")


@pytest.fixture
def program(tmp_path: Path) -> Compared:
    """One with two outputs: floats, and whole numbers."""
    np.save(tmp_path / "output0.npy", np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    np.save(tmp_path / "output1.npy", np.arange(5))
    (tmp_path / "model.pte").write_bytes(b"program")
    outputs = (tmp_path / "output0.npy", tmp_path / "output1.npy")
    limits = (Tolerance(atol=1e-5, rtol=0.0, why="fp32"), Tolerance(atol=0.0, rtol=0.0, why="the same bits"))
    return Compared(About("mlp fp32", "mlp", "fp32"), tmp_path / "model.pte", (), outputs, limits)


def planted(program: Compared, folder: Path, index: int, error: float) -> list[Path]:
    """The outputs as files of their own, one element of one of them wrong."""
    folder.mkdir()
    files = []
    for number, file in enumerate(program.outputs):
        array = np.load(file)
        if number == index:
            array.reshape(-1)[-2] += error
        files.append(folder / file.name)
        np.save(files[-1], array)
    return files


def test_one_wrong_element_is_found(program: Compared, tmp_path: Path) -> None:
    cell = agree_look.judge(program, program.outputs)
    assert (cell.outcome, cell.max_abs) == ("exact", 0)
    near = agree_look.judge(program, planted(program, tmp_path / "near", 0, 5e-6))
    assert near.outcome == "agrees" and 4e-6 < near.max_abs < 6e-6
    far = agree_look.judge(program, planted(program, tmp_path / "far", 0, 1e-3))
    assert far.outcome == "differs" and "output0: 1 of 12" in far.why
    whole = agree_look.judge(program, planted(program, tmp_path / "whole", 1, 1))
    assert whole.outcome == "differs" and "output1: 1 of 5" in whole.why
    nan = agree_look.judge(program, planted(program, tmp_path / "nan", 0, float("nan")))
    assert nan.outcome == "differs" and nan.max_abs == INFINITE
    assert agree_kept.text(nan) == "differs"


def test_a_wrong_cell_fails_the_command(program: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Shown(outcome="differs", max_abs=0.5, why="output0: 1 of 12 elements")
    platform = Platform(get_target("linux-armv6"), "arm1176", "qemu -cpu arm1176")
    monkeypatch.setattr(agree, "executors_for", lambda *_: [Executor(cast("Any", "no bundle"), platform, "runner")])
    monkeypatch.setattr(agree, "prepare", lambda abouts: [program])
    monkeypatch.setattr(agree, "look", lambda executor, program: wrong)
    monkeypatch.setattr(environment, "ensure_export", lambda: None)
    with pytest.raises(MismatchError, match="mlp fp32 on linux-armv6 arm1176"):
        agree.run(Agree(target="linux-armv6", program="mlp fp32"))
