"""What programs need of the lean engine beyond operators, against PyTorch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from core.bundle import Bundle

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

NAMES = [
    "dynamic", "dynamic-delegated", "data-dependent", "mutable", "conditional", "mapped", "scanned", "channels-last",
    "channels-last-input", "several-methods", "shared-state", "separate-state", "weights-apart",
]  # fmt: skip


@pytest.fixture(scope="module")
def lean() -> Bundle:
    """This machine's own bundle of the lean engine."""
    from deploy.inventory import host_target
    from toolchains.builder import build

    return build(host_target(), "lean")


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_what_pytorch_does(lean: Bundle, tmp_path: Path, name: str) -> None:
    import torch

    from tests.programs import KERNELS, PROGRAMS

    torch.manual_seed(3)
    program = PROGRAMS[name]()
    assert set(KERNELS.get(name, ())) <= set(program.operators)
    missing = set(program.operators) - set(lean.manifest.offers.operators)
    assert not missing
    (tmp_path / "model.pte").write_bytes(program.buffer)
    argv = [str(lean.path / "bin" / "pte_runner"), f"--model_path={tmp_path / 'model.pte'}", "--warmup=0"]
    for file, blob in program.data.items():
        (tmp_path / f"{file}.ptd").write_bytes(blob)
        argv.append(f"--data_path={tmp_path / f'{file}.ptd'}")
    for run in program.runs:
        for index, one in enumerate(run.inputs):
            np.save(tmp_path / f"in{index}.npy", one.contiguous().numpy())
        names = ",".join(str(tmp_path / f"in{index}.npy") for index in range(len(run.inputs)))
        earlier = []
        for place, (method, inputs) in enumerate(run.first):
            for index, one in enumerate(inputs):
                np.save(tmp_path / f"first{place}-{index}.npy", one.contiguous().numpy())
            files = ",".join(str(tmp_path / f"first{place}-{index}.npy") for index in range(len(inputs)))
            earlier.append(f"--run_first={method}={files}")
        words = [
            *earlier,
            f"--inputs={names}",
            f"--output_file={tmp_path / 'out'}",
            f"--num_executions={run.executions}",
        ]
        done = subprocess.run(
            [*argv, *words, f"--method_name={run.method}"], capture_output=True, text=True, check=False, timeout=60
        )
        if not run.results:
            assert done.returncode != 0, "inputs beyond what the program was exported for"
            assert "10x4" in done.stderr, done.stderr
            continue
        assert done.returncode == 0, done.stderr
        for index, want in enumerate(run.results):
            got = np.load(tmp_path / f"out{index}.npy")
            expected = want.detach().contiguous().numpy()
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"output {index}"
            np.testing.assert_allclose(got, expected, 1e-5, 1e-5, err_msg=f"output {index}")


def test_all_programs_are_tested() -> None:
    from tests.programs import PROGRAMS

    assert list(PROGRAMS) == NAMES
