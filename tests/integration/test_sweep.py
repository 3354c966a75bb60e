"""A sample of ``./inv self.fuzz --sweep``: changed numbers, between guarded pages."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.formats.program import load_program
from core.paths import cache_dir
from models.export import export
from tests.support.processes import ran
from verify.fuzz.build import GUARDED, build

pytestmark = [pytest.mark.build, pytest.mark.export]

CASES = (("conv", "qs8", 9), ("mlp", "fp32", 5), ("linear", "qd8_qb4w", 5))
"""Model, scheme, and of how many patches one is tried."""


@pytest.fixture(scope="module")
def sweep() -> Path:
    """The program that tries, with memory between guarded pages."""
    return build(GUARDED, "sweep_program", cache_dir("logs") / "test-sweep.log")


def program(model: str, scheme: str) -> Path:
    folder = export(model, scheme)
    return folder / load_program(folder).file


def tried(*argv: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    done = ran(argv, timeout=600)
    assert done.returncode == 0, done.stderr
    *findings, last = [json.loads(line) for line in done.stdout.splitlines()]
    return findings, last


@pytest.mark.parametrize(("model", "scheme", "every"), CASES)
def test_changed_numbers_are_refused_or_run_within_their_memory(
    sweep: Path, model: str, scheme: str, every: int
) -> None:
    findings, last = tried(sweep, program(model, scheme), "--run", f"--every={every}")
    assert not findings, [f"{one['path']} {one['was']} -> {one['now']}: {one['outcome']}" for one in findings]
    assert last["tried"] > 150
    assert last["sums"]["ran"] > 10
    assert last["sums"]["refused-3"] > 100


def test_a_loop_without_end_is_refused_for_its_rounds(sweep: Path) -> None:
    file = program("mixed", "fp16")
    listed = subprocess.run([sweep, file, "--list"], capture_output=True, text=True, timeout=60, check=True)
    path = "execution_plan[0].chains[0].instructions[15].instr_args_type"
    turned = [line.split() for line in listed.stdout.splitlines() if f"\t{path}\t" in line]
    # A kernel's call becomes a jump backwards, on a condition that stays false.
    (number,) = [words[0] for words in turned if words[-1] == "4"]
    findings, last = tried(sweep, file, "--run", f"--first={number}", "--count=1")
    assert not findings
    assert last["sums"] == {"refused-7": 1}  # this build allows a few thousand instructions


def test_memory_between_guarded_pages_ends_what_leaves_it(sweep: Path) -> None:
    """The sweep itself: what is written or read a byte too far is a finding."""
    for fault in ("write-behind", "read-far", "write-before"):
        done = ran([sweep, f"--fault={fault}"], timeout=60)
        assert done.returncode not in (0, 2), fault
        assert "signal" in done.stderr, fault


@pytest.mark.parametrize(
    ("model", "scheme", "refused", "runs"),
    [("conv", "fp32", (2, 3), ()), ("linear", "qd8_qc8w", (3, 4), (2,))],
    ids=["weights and biases", "scales and biases; weights of 8 bits"],
)
def test_constants_at_addresses_of_other_types_are_refused(
    sweep: Path, model: str, scheme: str, refused: tuple[int, ...], runs: tuple[int, ...]
) -> None:
    """Some processors end a program that reads a float32 anywhere; of int8 every address is good."""
    file = program(model, scheme)
    said = subprocess.run([sweep, file, "--list"], capture_output=True, text=True, check=True, timeout=60).stdout
    seen: dict[str, set[str]] = {}
    for number, _, _, _, path, was, now in (line.split("\t") for line in said.splitlines()):
        if path.startswith("segments[") and path.endswith(".offset") and abs(int(now) - int(was)) == 1:
            _, last = tried(sweep, file, "--run", f"--first={number}", "--count=1")
            seen.setdefault(path, set()).update(last["sums"])
    for segments, outcome in ((refused, "refused-3"), (runs, "ran")):
        for segment in segments:
            assert seen[f"segments[{segment}].offset"] == {outcome}, seen
