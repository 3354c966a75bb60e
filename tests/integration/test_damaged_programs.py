"""The engine lean with files that are no whole programs: cut off everywhere, and damaged as fuzzing once did."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.program import load_program
from tests.deploying import program
from tests.fuzzing import KEPT
from tests.integration.test_runner import programs
from tests.integration.test_runtime import compile_tests

__all__ = ["program", "programs"]

pytestmark = [pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that puts others through everything the engine does."""
    return compile_tests("linux-x86_64", tmp_path_factory.mktemp("tried"), "lean", "fuzz/try_programs")


def test_cut_off_anywhere_is_told(tried: Path, programs: Path, program: Path) -> None:
    files = [programs / "portable.pte", programs / "delegated.pte", program / load_program(program).file]
    done = subprocess.run([tried, "--truncate", "64", *files], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lengths = [int(line.split(": ")[1].split()[0]) for line in done.stdout.splitlines()]
    assert lengths == [-(-file.stat().st_size // 64) for file in files]


def test_whole_ones_run_and_damaged_ones_end_in_words(tried: Path, programs: Path) -> None:
    kept = sorted(KEPT.glob("*.pte"))
    done = subprocess.run(
        [tried, programs / "portable.pte", *kept], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0].endswith(": runs")
    assert len(lines) == 1 + len(kept)
