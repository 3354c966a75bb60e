"""The lean engine's runner with files that are no whole programs: cut off everywhere, and damaged as fuzzing did it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from core.bundle import RUNNER
from core.program import load_program
from models.export import export
from tests.fuzzing import KEPT
from toolchains import builder

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

STEP = 64
"""Bytes between one length tried and the next."""
DAMAGED = 3
FAILED = 7
REFUSED = (DAMAGED, 4, 5, 6, FAILED, 9)
"""Exit codes that say what is wrong with a program; a crash has others."""


@pytest.fixture(scope="module")
def runner() -> Path:
    """This machine's own runner of the engine lean."""
    return builder.build("linux-x86_64", "lean").path / RUNNER


def run(runner: Path, program: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(runner), f"--model_path={program}", "--json", "--warmup=1", "--num_executions=1"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("model", "scheme"), [("mlp", "qs8"), ("matmul", "fp32"), ("conv", "fp32")])
def test_a_program_cut_off_anywhere_is_told(runner: Path, tmp_path: Path, model: str, scheme: str) -> None:
    folder = export(model, scheme)
    whole = (folder / load_program(folder).file).read_bytes()
    cut = tmp_path / "cut.pte"
    for length in range(0, len(whole), STEP):
        cut.write_bytes(whole[:length])
        done = run(runner, cut)
        assert done.returncode == DAMAGED, (length, done)
        error = json.loads(done.stdout)["error"]
        assert "cut.pte" in error["message"], length
        assert error["fix"], length
    cut.write_bytes(whole)
    assert run(runner, cut).returncode == 0, "the whole one runs"


def test_a_wrong_program_ends_in_words(runner: Path, tmp_path: Path) -> None:
    from tests.wrong import WRONG, program

    for name in WRONG:
        file = tmp_path / f"{name}.pte"
        file.write_bytes(program(name))
        done = run(runner, file)
        assert done.returncode in (DAMAGED, FAILED), (name, done)
        error = json.loads(done.stdout)["error"]
        assert "::" in error["message"], "the operator is named, which a crash does not do"
        assert error["fix"], name


def test_whatever_fuzzing_found_ends_in_words(runner: Path) -> None:
    kept = sorted(KEPT.glob("*.pte"))
    assert kept
    for program in kept:
        done = run(runner, program)
        assert done.returncode in (0, *REFUSED), (program.name, done)
        error = json.loads(done.stdout).get("error", {"message": "", "fix": "none needed"})
        assert "crashed" not in error["message"], (program.name, error)
        assert error["fix"], program.name
