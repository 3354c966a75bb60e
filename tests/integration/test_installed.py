"""Slipway installed by pip into a project that has a ``core``, a ``deploy`` and a ``tasks.py`` of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran

pytestmark = [pytest.mark.build, pytest.mark.export]

TESTS = """\
import core
import deploy

def test_the_same(slipway_deploy):
    assert slipway_deploy("mlp", num_executions=2).outputs[0].max_abs < 1e-4
    assert (core.MINE, deploy.MINE) == (1, 2)

def test_a_program_of_my_own(slipway_run, tmp_path):
    script = tmp_path / "mine.sh"
    script.write_text("#!/bin/sh\\necho mine\\n")
    assert slipway_run(script).stdout == b"mine\\n"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an environment, in which pip has installed Slipway and what it chose beside it."""
    folder = tmp_path_factory.mktemp("project")
    for name, value in (("core", 1), ("deploy", 2)):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"MINE = {value}\n")
    (folder / "tasks.py").write_text('raise RuntimeError("these are the tasks of the project")\n')
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    (folder / "test_mine.py").write_text(TESTS)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip: list[str | Path] = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile"]
    subprocess.run([*pip, "pytest", ROOT], check=True, cwd=folder)
    return folder


def run(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # The environment of the commands is made from the same locks as the one of these tests: it need not be made again.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SLIPWAY_DIST"}}
    environment |= {"SLIPWAY_VENV": sys.prefix, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return ran([project / "venv" / "bin" / words[0], *words[1:]], cwd=project, env=environment)


def files(project: Path) -> dict[str, str]:
    top = next(project.glob("venv/lib/python*/site-packages/slipway"))
    found = (file for file in top.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def test_the_commands(project: Path) -> None:
    before = files(project)
    done = run(project, "slipway", "--version")
    assert (done.returncode, done.stdout) == (0, "Slipway 0.1.0\n"), done.stderr
    done = run(project, "slipway", "targets", "--json")
    assert "linux-arm64" in done.stdout, done.stderr
    done = run(project, "slipway", "doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert {each["name"] for each in json.loads(done.stdout)} >= {"Python", "linux-arm64 with zig"}
    done = run(project, "slipway", "depoly")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Try: slipway deploy")
    done = run(project, "slipway", "deploy", "--device", "local", "--model", "mlp", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] in {"agrees", "identical"}
    assert (project / "dist" / "programs" / "mlp-fp32" / "model.pte").is_file()
    assert (project / "dist" / "results").is_dir()
    assert files(project) == before, "what is installed stays as it is"


def test_tests_of_the_project_on_devices(project: Path) -> None:
    words = ("pytest", "-p", "no:cacheprovider", "-W", "error", "--junitxml=report.xml")
    done = run(project, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "slipway: running mlp-fp32 on local" in done.stdout
    found = {each.attrib["name"]: each.attrib["value"] for each in ET.parse(project / "report.xml").iter("property")}  # noqa: S314
    assert found["slipway.device"] == "local"
    assert float(found["slipway.p50_ms"]) > 0
