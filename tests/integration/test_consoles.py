"""The commands of docs/embedding.md by which a reader builds what uses libslipway, typed as they stand there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy
import pytest

from core.formats.program import load_program
from core.paths import ROOT
from models.export import export
from tests.support import consoles
from tests.support.processes import ran
from toolchains.bundle import conan
from toolchains.bundle.sdk import build_sdk

pytestmark = [pytest.mark.build, pytest.mark.export]


def test_embedding_from_the_checkout(tmp_path: Path) -> None:
    """The three lines by which C++ code of the reader's is built, in a folder like the checkout, with its files."""
    sdk = build_sdk("linux-x86_64")
    shutil.copytree(ROOT / "runtime/examples", tmp_path / "runtime/examples")
    (tmp_path / "dist" / "linux-x86_64").mkdir(parents=True)
    (tmp_path / "dist" / "linux-x86_64" / "sdk").symlink_to(sdk.path)
    folder = export("mlp", "fp32")
    program = load_program(folder)
    shutil.copy(folder / program.file, tmp_path / "model.pte")
    (tmp_path / "input.bin").write_bytes(numpy.load(folder / "input0.npy").tobytes())
    tools = os.pathsep.join(str(Path(conan.program(name)).parent) for name in ("cmake", "ninja"))
    env = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "CMAKE_GENERATOR": "Ninja"}
    page = [command for name, command in consoles.lines() if name == "embedding.md"]
    for start in ("cmake -S runtime/examples -B build -D", "cmake --build build", "build/run_once "):
        command = next(one for one in page if one.startswith(start))
        done = ran(["sh", "-c", command], cwd=tmp_path, env={**os.environ, **env})
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    output = numpy.frombuffer((tmp_path / "output.bin").read_bytes(), numpy.float32)
    assert numpy.allclose(output, numpy.load(folder / "output0.npy").ravel(), atol=1e-4)
