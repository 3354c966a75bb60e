"""A bundle linked for one program only: it runs that one, and says of others what it lacks and what to do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy
import pytest

from core.bundle import RUNNER
from tests.integration.test_runner import programs
from toolchains import builder
from toolchains.selection import select

__all__ = ["programs"]

pytestmark = [pytest.mark.build, pytest.mark.export]

OPERATORS = ("aten::addmm.out", "aten::permute_copy.out", "aten::relu.out")


def test_it_has_what_its_program_needs_and_nothing_else(programs: Path, tmp_path: Path) -> None:
    whole = builder.build("linux-x86_64", "lean")
    bundle = builder.build("linux-x86_64", "lean", selection=select(["portable"], OPERATORS, []))
    assert bundle.path.name == "lean-portable"
    assert builder.build("linux-x86_64", "lean").path == whole.path, "the full bundle keeps its place"
    offers = bundle.manifest.offers
    assert (offers.programs, offers.operators, offers.backends) == (("portable",), OPERATORS, ())
    assert (bundle.path / RUNNER).stat().st_size < 0.65 * (whole.path / RUNNER).stat().st_size

    def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(bundle.path / RUNNER), f"--model_path={programs / name}.pte", "--json", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    done = run("portable", f"--inputs={programs / 'portable.in0.npy'}", f"--output_file={tmp_path / 'y'}")
    assert done.returncode == 0, done.stderr
    assert numpy.allclose(numpy.load(tmp_path / "y0.npy"), numpy.load(programs / "portable.out0.npy"), atol=1e-6)
    for name, code, lacking in (("numbers", 4, "aten::"), ("delegated", 5, "XnnpackBackend")):
        refused = run(name)
        error = json.loads(refused.stdout)["error"]
        assert (refused.returncode, "--ops-from" in error["fix"]) == (code, True)
        assert error["names"][0].startswith(lacking)
