"""Upstream's runtime and its own tests beside ours: what is found wrong, who is right, what is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from commands.own import Agree
from core import environment
from core.errors import ExportError, MismatchError
from core.formats.program import Tolerance
from toolchains.emulation.platforms import Platform
from toolchains.targets import get_target
from verify.agree import agree, sound
from verify.agree import kept as agree_kept
from verify.agree import look as agree_look
from verify.agree.kept import Cell
from verify.agree.look import Executor
from verify.agree.programs import About, Compared
from verify.upstream import exact as upstream_exact
from verify.upstream import suites as upstream_suites
from verify.upstream.suites import Case

NAME = "xnnpack/test/ops/test_abs.py::TestAbs::test_fp32_abs"

WORKER = """
import json, os, sys
from hashlib import sha256
from pathlib import Path
tests, base, status = Path(sys.argv[1]).read_text().split("\\n"), Path(sys.argv[2]), int(sys.argv[3])
for name in tests:
    folder = base / sha256(name.encode()).hexdigest()[:20]
    folder.mkdir(exist_ok=True)
    if status:
        os._exit(status)
    (folder / "started").touch()
    if name == "crash":
        os._exit(9)
    (folder / "test.json").write_text(json.dumps({"test": name, "outcome": "passed", "why": "", "cases": []}))
    (folder / "started").unlink()
"""


def case(folder: Path, **changed: object) -> Case:
    known: dict[str, object] = {
        "test": NAME, "number": 0, "folder": folder, "program": "p.pte", "kind": "float", "steps": (), "shallow": False,
        "inputs": 1, "outputs": 1, "eager": 1, "refused": "", "left_out": "",
    }  # fmt: skip
    return Case(**{**known, **changed})  # type: ignore[arg-type]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Workers that are ours, and end in the middle of the test called ``crash``; or all at once, with a status."""
    status = [0]

    def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as sink:
            return subprocess.Popen([sys.executable, "-c", WORKER, *words, str(status[0])], stdout=sink, stderr=sink)

    monkeypatch.setattr(upstream_suites, "_start", start)
    monkeypatch.setattr(upstream_suites, "base_folder", lambda *, ours: tmp_path)
    return status


@pytest.mark.usefixtures("workers")
def test_a_test_that_ends_the_process_is_named_and_the_others_run(tmp_path: Path) -> None:
    found = upstream_suites.collect(["one", "crash", "two", "three"], jobs=2)
    assert [test.outcome for test in found] == ["passed", "crashed", "passed", "passed"]
    assert "exit status 9" in found[1].why
    assert not list(tmp_path.glob("shard-*"))


@pytest.mark.parametrize("status", [1, 3])
def test_processes_that_run_no_test_are_an_error(workers: list[int], status: int) -> None:
    workers[0] = status
    with pytest.raises(ExportError):
        upstream_suites.collect(["one", "two"], jobs=1)


def test_what_ran_is_not_run_again(workers: list[int]) -> None:
    upstream_suites.collect(["one"], jobs=1)
    workers[0] = 3
    assert [test.outcome for test in upstream_suites.collect(["one"], jobs=1)] == ["passed"]


def save(folder: Path, **arrays: list[float]) -> None:
    for name, numbers in arrays.items():
        np.save(folder / f"0-{name}0.npy", np.array(numbers, np.float32))


@pytest.mark.parametrize(
    ("ours", "theirs", "right"),
    [([1, 2.001], [1, 2.5], "lean"), ([1, 9], [1, 2.001], "upstream"), ([1, 2.1], [1, 2.2], ""),
     ([1, 2], [1, np.nan], "lean"), ([np.inf, 2], [1, 2.001], "upstream")],
)  # fmt: skip
def test_who_is_right_is_what_pytorch_says(tmp_path: Path, ours: list[float], theirs: list[float], right: str) -> None:
    save(tmp_path, output=theirs, eager=[1, 2])
    np.save(tmp_path / "ours.npy", np.array(ours, np.float32))
    assert sound.who_is_right(case(tmp_path), [tmp_path / "ours.npy"])[0] == right


def test_numbers_are_quantized_as_xnnpack_does_it() -> None:
    """By hand: a reach of 3 in 255 steps of 1/85, zero on -43; 0.01 is 1 step, and by itself all of 255."""
    numbers, steps = upstream_exact.quantized_rows(np.array([[-1, 0.01, 2], [0, 0, 0]], np.float32))
    assert numbers.tolist() == [[-85, 1, 170], [0, 0, 0]]  # 0.85 is rounded
    assert steps == pytest.approx([3 / 255, 1])
    image = np.array([[[0.01], [3]]], np.float32)
    weights = np.array([[2.0]])
    assert upstream_exact.product(image, 2, weights).ravel().tolist() == pytest.approx([2 / 85, 6])
    assert upstream_exact.product(image, 1, weights).ravel().tolist() == pytest.approx([0.02, 6])
    assert upstream_exact.unpacked(bytes([0x98, 0xF7, 0x0F, 0x05]), 2, 3).tolist() == [[0, 1, -1], [7, -8, -3]]


def test_what_the_docs_say_is_missing_is_known() -> None:
    said = "Method forward needs {} this runner does not have: {}."
    for operators, known in (
        ("aten::_fft_r2c.out, aten::abs.out of complex64", True), ("aten::abs.out", False),
        ("aten::_fft_r2c.out, aten::add.out", False),
    ):  # fmt: skip
        assert sound.documented(said.format("operators", operators)) is known
    assert not sound.documented("in0.npy holds elements of type '>f4'.")


def test_what_was_collected_is_kept_while_only_words_of_our_code_change() -> None:
    before = '"""One."""\nX = "a"  # why\n\n\ndef f() -> str:\n    """Two."""\n    return X\n'
    words = '"""Three."""\n\nX = "a"\n\n\ndef f() -> str:\n    """Four."""\n    # another why\n    return X\n'
    assert upstream_suites.code_digest(before) == upstream_suites.code_digest(words)
    assert upstream_suites.code_digest(before) != upstream_suites.code_digest(before.replace('"a"', '"b"'))
    assert upstream_suites.code_digest(before) != upstream_suites.code_digest(before.replace("return", "yield"))


ABOUT = About("mlp fp32", "mlp", "fp32")
LIMIT = Tolerance(atol=1e-5, rtol=0.0, why="fp32")
EXACT = Tolerance(atol=0.0, rtol=0.0, why="the same bits")


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
    assert nan.outcome == "differs" and nan.max_abs == agree_kept.INFINITE
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
