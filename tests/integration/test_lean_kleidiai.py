"""Layers on KleidiAI's kernels, on processors that have what they want and on one that has not, under QEMU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.bundle import RUNNER
from core.paths import ROOT
from toolchains import builder, emulators
from toolchains.sysroot import sysroot
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]

MAKER = ROOT / "tests" / "fixtures" / "runner" / "kleidiai.py"
OWN = "kai_run_matmul_clamp_f32_"
EXPECTED: dict[tuple[str, str], str] = {
    # Kernels that the engine calls itself.
    ("qc8w-21", "cortex-a76"): OWN + "qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod",
    ("qc8w-1", "cortex-a76"): OWN + "qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod",
    ("qc8w-21", "max"): OWN + "qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm",
    ("qc8w-1", "max"): OWN + "qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod",
    ("qc8w-21", "sme2"): OWN + "qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa",
    ("qc8w-1", "sme2"): OWN + "qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot",
    # None: XNNPACK's own.
    ("qc8w-21", "cortex-a53"): "",
    ("qc8w-1", "cortex-a53"): "",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of fixtures/runner/kleidiai.py."""
    folder = tmp_path_factory.mktemp("kleidiai")
    done = subprocess.run([sys.executable, MAKER, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize(("program", "cpu"), EXPECTED)
def test_a_layer_runs_on_the_kernel_its_processor_has(program: str, cpu: str, programs: Path, tmp_path: Path) -> None:
    target = get_target("linux-arm64")
    bundle = builder.build(target.name, "lean")
    argv = [*emulators.user_argv(target, cpu, sysroot(target)), str(bundle.path / RUNNER)]
    argv += [f"--model_path={programs / program}.pte", f"--inputs={programs / program}.in.npy", "--cpu_threads=2"]
    argv += [f"--output_file={tmp_path / 'out'}", "--num_executions=2", "--profile", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    layers = {use["kernel"] for use in result["kernels"] if use["library"] == "KleidiAI"}
    assert layers == ({EXPECTED[program, cpu]} if EXPECTED[program, cpu] else set())
    assert len(result["kernels"]) == 3, "one a layer"
    # Every layer is in the profile by the name it has here.
    assert {use["node"] for use in result["kernels"]} <= {row["name"] for row in result["profile"]}
    for index in range(2):
        wanted = numpy.load(programs / f"{program}.out{index}.npy")
        # Activations are rounded to 8 bits: one that falls between two steps may go the other way.
        numpy.testing.assert_allclose(numpy.load(tmp_path / f"out{index}.npy"), wanted, rtol=0, atol=5e-3)
