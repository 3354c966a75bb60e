"""Upstream's runtime beside ours: what is found wrong, and who is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from commands.own import Agree
from core import environment
from core.errors import MismatchError
from core.formats.program import Tolerance
from toolchains.emulation.platforms import Platform
from toolchains.targets import get_target
from verify.agree import agree, sound
from verify.agree import kept as agree_kept
from verify.agree import look as agree_look
from verify.agree.look import Executor
from verify.agree.programs import INFINITE, About, Cell, Compared

ABOUT = About("mlp fp32", "mlp", "fp32")
LIMIT = Tolerance(atol=1e-5, rtol=0.0, why="fp32")
EXACT = Tolerance(atol=0.0, rtol=0.0, why="the same bits")


def save(folder: Path, **arrays: list[float]) -> None:
    for name, numbers in arrays.items():
        np.save(folder / f"{name}.npy", np.array(numbers, np.float32))


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
    return Compared(ABOUT, tmp_path / "model.pte", (), outputs, (LIMIT, EXACT))


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


def executor(target: str, cpu: str, key: str = "runner") -> Executor:
    """A place whose bundle nobody asks for."""
    platform = Platform(get_target(target), cpu, f"qemu -cpu {cpu}")
    return Executor(cast("Any", None), platform, key)


def test_a_wrong_cell_fails_the_command(program: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Cell(outcome="differs", max_abs=0.5, why="output0: 1 of 12 elements")
    monkeypatch.setattr(agree, "executors_for", lambda target, cpu: [executor("linux-armv6", "arm1176")])
    monkeypatch.setattr(agree, "prepare", lambda abouts: [program])
    monkeypatch.setattr(agree, "look", lambda executor, program: wrong)
    monkeypatch.setattr(environment, "ensure_export", lambda: None)
    with pytest.raises(MismatchError, match="mlp fp32 on linux-armv6 arm1176"):
        agree.run(Agree(target="linux-armv6", program="mlp fp32"))
