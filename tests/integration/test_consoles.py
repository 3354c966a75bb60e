"""The `console` blocks of docs/, typed as they stand there (which, and where the others: tests/support/consoles.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

from core.paths import ROOT
from core.program import load_program
from models.export import export
from tests.support import consoles
from toolchains.build import conan
from toolchains.build.sdk import build_sdk

pytestmark = [pytest.mark.build, pytest.mark.export]


def test_embedding_from_the_checkout(tmp_path: Path) -> None:
    """The three lines by which C++ code of the reader's is built, in a folder like the checkout, with its files."""
    sdk = build_sdk("linux-x86_64")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "dist" / "linux-x86_64").mkdir(parents=True)
    (tmp_path / "dist" / "linux-x86_64" / "sdk").symlink_to(sdk.path)
    folder = export("mlp", "fp32")
    program = load_program(folder)
    shutil.copy(folder / program.file, tmp_path / "model.pte")
    (tmp_path / "input.bin").write_bytes(numpy.load(folder / "input0.npy").tobytes())
    tools = os.pathsep.join(str(Path(conan.program(name)).parent) for name in ("cmake", "ninja"))
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "CMAKE_GENERATOR": "Ninja"}
    for command in consoles.to_run("embedding.md"):
        ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    output = numpy.frombuffer((tmp_path / "output.bin").read_bytes(), numpy.float32)
    assert numpy.allclose(output, numpy.load(folder / "output0.npy").ravel(), atol=1e-4)
