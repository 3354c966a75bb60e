"""What programs need of the lean engine beyond operators, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import Bundle
from tests.support.builds import named
from verify.agree.look import execute, native
from verify.agree.programs import About, Compared

pytestmark = [
    pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("hastened"),
]  # fmt: skip

NAMES = named("verify/sound/runtime.py", "PROGRAMS")
EACH = named("verify/sound/table.py", "EACH")
"""Of `verify.sound`: of each kind one in every run of the tests."""


@pytest.mark.parametrize("name", [*NAMES, *EACH])
def test_a_program_does_what_pytorch_does(lean: Bundle, tmp_path: Path, name: str) -> None:
    import torch

    from verify.sound.runtime import KERNELS
    from verify.sound.table import programs

    torch.manual_seed(3)
    program = programs()[name if name in EACH else f"runtime-{name}"]()
    assert set(KERNELS.get(name, ())) <= set(program.operators)
    missing = set(program.operators) - set(lean.manifest.offers.operators)
    assert not missing
    file, data = tmp_path / "model.pte", tuple(tmp_path / f"{one}.ptd" for one in program.data)
    file.write_bytes(program.buffer)
    for one, blob in zip(data, program.data.values(), strict=True):
        one.write_bytes(blob)
    for number, run in enumerate(program.runs):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        inputs = _saved(tmp_path / f"{number}-in", run.inputs)
        first = tuple((to, _saved(tmp_path / f"{number}-{at}-", given)) for at, (to, given) in enumerate(run.first))
        about = Compared(About(name), file, inputs, (), (), run.executions, run.method, data, first)
        answer = execute(native(lean), about, folder)
        if not run.results:
            wanted = "max_context_length" if name.startswith("language") else "10x4"
            assert wanted in str(answer.error), "inputs beyond what the program was exported for"
            continue
        assert not answer.error
        for index, (output, want) in enumerate(zip(answer.outputs, run.results, strict=True)):
            got, expected = np.load(output), want.detach().contiguous().numpy()
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"output {index}"
            np.testing.assert_allclose(got, expected, 1e-5, 1e-5, err_msg=f"output {index}")


def _saved(prefix: Path, values: Sequence[Any]) -> tuple[Path, ...]:
    files = tuple(prefix.with_name(f"{prefix.name}{index}.npy") for index in range(len(values)))
    for file, value in zip(files, values, strict=True):
        np.save(file, value.contiguous().numpy())
    return files
