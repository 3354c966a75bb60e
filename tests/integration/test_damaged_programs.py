"""The lean engine's runner with files that are no whole programs: cut off everywhere, and damaged as fuzzing did it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

KEPT = ROOT / "tests" / "fixtures" / "damaged"
"""Programs that something was found with."""
DAMAGED = 3
FAILED = 7
REFUSED = (DAMAGED, 4, 5, 6, FAILED, 9)
"""Exit codes that say what is wrong with a program; a crash has others."""


def run(runner: Path, program: Path, *words: str, limit: int = 0) -> subprocess.CompletedProcess[str]:
    """Run it once, with at most so many bytes of address space."""
    argv = [str(runner), f"--model_path={program}", "--json", "--warmup=1", "--num_executions=1", *words]
    if limit:
        argv = ["prlimit", f"--as={limit}", *argv]
    return ran(argv, timeout=60)


def test_a_wrong_program_ends_in_words(lean_runner: Path, tmp_path: Path) -> None:
    from verify.operators.attacks import WRONG, program

    for name in WRONG:
        file = tmp_path / f"{name}.pte"
        written, operator = program(name)
        file.write_bytes(written)
        done = run(lean_runner, file)
        assert done.returncode in (DAMAGED, FAILED), (name, done)
        error = json.loads(done.stdout)["error"]
        assert operator in error["message"], (name, "the operator is named, which a crash does not do", error)
        assert error["fix"], name


def test_sizes_without_elements_take_neither_memory_nor_time(lean_runner: Path, tmp_path: Path) -> None:
    from verify.operators.attacks import GREEDY, REFUSED
    from verify.operators.written import Writer

    for name, write in GREEDY.items():
        writer, sound = Writer(), name not in REFUSED
        write(writer)
        file = tmp_path / f"{name}.pte"
        file.write_bytes(writer.program())
        done = run(lean_runner, file, limit=1 << 29)
        assert done.returncode == (0 if sound else FAILED), (name, done)
        assert sound or writer.operators[-1] in json.loads(done.stdout)["error"]["message"], name


def _written(file: Path, planned: int = 0, jump_to: int = -1) -> Path:
    """A ReLU, with so many bytes of planned memory or a jump backwards at its end that is always taken."""
    import torch
    from executorch.exir import schema

    from verify.operators.written import Out, Writer

    writer = Writer()
    writer.call("aten::relu.out", torch.ones(4), Out(torch.ones(4)))
    if jump_to >= 0:
        writer.values.append(schema.EValue(schema.Bool(False)))
        jump = schema.JumpFalseCall(cond_value_index=len(writer.values) - 1, destination_instruction=jump_to)
        writer.instructions.append(schema.Instruction(jump))
    writer._used = max(planned, writer._used)
    file.write_bytes(writer.program())
    return file


@pytest.mark.parametrize("to", [0, 1])
def test_a_program_that_goes_round_for_ever_is_ended(lean_runner: Path, tmp_path: Path, to: int) -> None:
    program = _written(tmp_path / "round.pte", jump_to=to)
    for words, most in (([], "10000000"), (["--max_jumps=7"], "7")):
        done = run(lean_runner, program, *words)
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["kind"]) == (11, "limit"), done
        assert f"jumped backwards more than {most} times" in error["message"]
        assert "--max_jumps" in error["fix"]
    assert run(lean_runner, _written(tmp_path / "on.pte", jump_to=2), "--max_jumps=1").returncode == 0, "to its end"


def test_more_planned_memory_than_there_is_is_refused_before_it_is_asked_for(lean_runner: Path, tmp_path: Path) -> None:
    for planned in (1 << 42, 1 << 62):
        done = run(lean_runner, _written(tmp_path / "huge.pte", planned=planned))
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["kind"]) == (9, "memory"), done
        assert f"what forward has planned: it takes {planned} bytes" in error["message"]
        assert "this device leaves" in error["message"]
    limited = run(lean_runner, _written(tmp_path / "some.pte", planned=3 << 30), limit=2 << 30)
    assert limited.returncode == 9
    assert "ulimit -v leaves" in json.loads(limited.stdout)["error"]["message"]


def test_a_large_output_named_many_times_is_refused_before_it_is_copied(lean_runner: Path, tmp_path: Path) -> None:
    import torch

    from verify.operators.written import Writer

    writer = Writer()
    large = writer.tensor(torch.zeros(8 << 20))
    writer._outputs += [large] * 40
    file = tmp_path / "often.pte"
    file.write_bytes(writer.program())
    done = run(lean_runner, file, limit=1 << 29)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (9, "memory"), done
    assert "There is no memory for output" in error["message"]
    writer._outputs = writer._outputs[:2]
    file.write_bytes(writer.program())
    assert run(lean_runner, file, limit=1 << 29).returncode == 0


def test_whatever_fuzzing_found_ends_in_words(lean_runner: Path) -> None:
    kept = sorted(KEPT.glob("*.pte"))
    assert kept
    for program in kept:
        done = run(lean_runner, program, limit=1 << 30)
        assert done.returncode in (0, *REFUSED), (program.name, done)
        error = json.loads(done.stdout).get("error", {"message": "", "fix": "none needed"})
        assert "crashed" not in error["message"], (program.name, error)
        assert error["fix"], program.name
