"""The action and the GitLab component, their scripts run as the two systems run them, on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.paths import ROOT
from deploy.matrix.model import load_matrix
from tests.support.builds import checkout, lend_bundle, lend_program
from tests.support.processes import ran, well
from tests.unit.test_workflow import filled

pytestmark = [pytest.mark.build, pytest.mark.export]

_SHELLS = {"sh": ["sh", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
"""As GitHub's documentation has them (jobs.<job_id>.steps[*].shell)."""
_VALUE = re.compile(r"\$\{\{\s*(?:inputs\.([\w-]+)|steps\.([\w-]+)\.outputs\.([\w-]+))\s*\}\}")
_OUTPUT = re.compile(r"^([\w-]+)(?:<<(\w+)\n(.*?)\n\2|=(.*?))$", re.MULTILINE | re.DOTALL)
"""In a file of outputs: a line ``name=value``, or ``name<<word``, lines, ``word``."""


@dataclass
class Ran:
    code: int = 0
    printed: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)


def outputs_of(text: str) -> dict[str, str]:
    assert _OUTPUT.sub("", text).strip() == ""
    return {name: several or one for name, _, several, one in _OUTPUT.findall(text)}


def run_action(folder: Path, inputs: Mapping[str, str], workspace: Path, work: Path) -> Ran:
    """Run an action's script steps until one fails, as GitHub does; its own files go to the empty folder ``work``."""
    action: Any = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
    unknown = set(inputs) - set(action["inputs"])
    assert not unknown, unknown
    given = {name: inputs.get(name, one.get("default", "")) for name, one in action["inputs"].items()}
    ran = Ran()

    def value(text: str) -> str:
        return _VALUE.sub(lambda at: given[at[1]] if at[1] else ran.steps.get(at[2], {}).get(at[3], ""), text)

    for index, step in enumerate(action["runs"]["steps"]):
        if "run" not in step:
            continue
        files = {name: work / f"{name}-{index}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        script = work / f"step-{index}.sh"
        script.write_text(value(step["run"]), encoding="utf-8")
        done = subprocess.run(
            [*_SHELLS[step["shell"]], str(script)],
            cwd=workspace,
            env={
                **os.environ, "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(folder),
                "GITHUB_WORKSPACE": str(workspace), **{name: str(file) for name, file in files.items()},
                **{name: value(str(text)) for name, text in step.get("env", {}).items()},
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        ran.printed += done.stdout
        ran.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        ran.steps[step.get("id", str(index))] = outputs_of(files["GITHUB_OUTPUT"].read_text(encoding="utf-8"))
        ran.code = done.returncode
        if ran.code:
            break
    ran.outputs = {name: value(one["value"]) for name, one in action["outputs"].items()}
    return ran


CELL = "local & lean & mlp-fp32"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A user's repository, where a job built and exported before."""
    folder = tmp_path / "my repository"
    lend_bundle(folder / "dist", "linux-x86_64", "lean")
    lend_program(folder / "dist", "mlp", "fp32")
    return folder


def _act(workspace: Path, tmp_path: Path, **inputs: str) -> Ran:
    work = tmp_path / "runner"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return run_action(ROOT, {name.replace("_", "-"): value for name, value in inputs.items()}, workspace, work)


def test_plan_run_and_merge(workspace: Path, tmp_path: Path) -> None:
    """What the workflow's three jobs do, one after the other."""
    planned = _act(workspace, tmp_path, command="plan", only=CELL)
    assert planned.code == 0, planned.printed
    (job,) = json.loads(planned.outputs["matrix"])["include"]
    assert job["name"] == "local-linux-x86_64-lean"

    wider = json.loads(_act(workspace, tmp_path, command="plan", only="pi & mlp*").outputs["matrix"])["include"]
    assert {job["device"] for job in wider} == {"pi"}
    assert all("mlp" in job["only"] and job["name"] for job in wider)

    ran = _act(workspace, tmp_path, command="matrix", only=job["only"], name=job["name"], args="--rounds=1\n--models=")
    assert ran.code == 0, ran.printed
    assert ran.outputs["exit-code"] == "0"
    assert (ran.outputs["cells"], ran.outputs["failed"]) == ("1", "0")
    reports = Path(ran.outputs["reports"])
    assert reports == workspace / "dist" / "matrix" / job["name"]
    assert ran.summary.startswith("## 1 program on 1 device with 1 engine: the cell passed.")
    assert ran.summary == (reports / "summary.md").read_text(encoding="utf-8")
    assert "::stop-commands::" in ran.printed

    # As actions/download-artifact leaves them.
    shutil.copytree(reports, workspace / "jobs" / f"matrix-{job['name']}")
    broken = load_matrix(reports / "matrix.json")
    lost = broken.cells[0].model_copy(
        update={"key": "pi9/linux-arm64/lean/mlp-fp32", "device": "pi9", "outcome": "failed"}
    )
    other = workspace / "jobs" / "matrix-pi9" / "matrix.json"
    other.parent.mkdir()
    other.write_text(broken.model_copy(update={"cells": (lost,)}).model_dump_json(), encoding="utf-8")
    merged = _act(workspace, tmp_path, command="merge", name="merged")
    assert merged.code == 33, merged.printed
    assert (merged.outputs["exit-code"], merged.outputs["cells"], merged.outputs["failed"]) == ("33", "2", "1")
    assert "1 of 2 cells failed" in merged.summary
    assert (workspace / "dist" / "matrix" / "merged" / "report.html").is_file()

    # A job that ends before its first cell has no count, even where an earlier matrix left its reports.
    failed = _act(workspace, tmp_path, command="matrix", only="nowhere", name=job["name"])
    assert (reports / "matrix.json").is_file()
    assert (failed.code, failed.outputs["cells"], failed.outputs["failed"]) == (2, "", "")


def test_build_and_deploy(workspace: Path, tmp_path: Path) -> None:
    built = _act(workspace, tmp_path, command="build", target="linux-x86_64", engine="lean")
    assert built.code == 0, built.printed
    assert "## build: done" in built.summary
    done = _act(workspace, tmp_path, command="deploy", device="local", engine="lean", model="mlp", scheme="fp32")
    assert done.code == 0, done.printed
    assert "output0" in done.summary
    assert list((workspace / "dist" / "results").glob("*mlp-fp32*"))
    assert Path(done.outputs["log"]).is_file()


def test_a_mistake_is_the_jobs_failure_and_on_its_page(workspace: Path, tmp_path: Path) -> None:
    wrong = _act(workspace, tmp_path, command="deploy", device="nowhere", model="mlp")
    assert wrong.code == 3
    assert wrong.outputs["exit-code"] == "3"
    assert "## deploy: exit code 3" in wrong.summary
    assert "Try: " in wrong.summary
    assert _act(workspace, tmp_path, command="destroy").code == 2


def test_what_an_input_holds_is_a_word_and_no_command(workspace: Path, tmp_path: Path) -> None:
    evil = '$(touch "$GITHUB_WORKSPACE/evil"); "`touch evil`'
    for inputs in ({"only": evil}, {"args": f"--only\n{evil}"}, {"name": evil}, {"command": evil}):
        ran = _act(workspace, tmp_path, **{"command": "matrix", **inputs})
        assert ran.code in {2, 3}, ran.printed
        assert not (workspace / "evil").exists()


def _jobs(**inputs: Any) -> Any:
    """The component's jobs with its inputs, or their defaults."""
    spec, jobs = yaml.safe_load_all((ROOT / "templates" / "matrix.yml").read_text(encoding="utf-8"))
    return filled({name: inputs.get(name, one["default"]) for name, one in spec["spec"]["inputs"].items()}, jobs)


def test_the_gitlab_component(workspace: Path, tmp_path: Path) -> None:
    """It fetches Slipway from a repository; the environment is this checkout's, made from the same lock."""
    origin = checkout(tmp_path / "slipway.git")
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    jobs = _jobs(repository=origin.as_uri(), only="lean & mlp-fp32", devices=["local"])
    base = jobs[".slipway"]
    (device,) = jobs["slipway-cells"]["parallel"]["matrix"][0]["DEVICE"]

    def job(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        given = {"CI_PROJECT_DIR": str(workspace), **more}
        for key, text in {**base["variables"], **jobs[name].get("variables", {})}.items():
            given[key] = text.replace("$CI_PROJECT_DIR", str(workspace))
        del given["SLIPWAY_CACHE"]  # this machine's: what was built is there
        script = "\n".join([*base["before_script"], *jobs[name]["script"]])
        env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(Path.home()), **given}
        env["SLIPWAY_VENV"] = str(Path(sys.executable).parent.parent)
        return ran(["bash", "-eo", "pipefail", "-c", script], cwd=workspace, env=env)

    well(job("slipway-cells", DEVICE=device))
    well(job("slipway-report"))
    found = load_matrix(workspace / "dist" / "matrix" / "merged" / "matrix.json")
    assert [(cell.device, cell.outcome) for cell in found.cells] == [("local", "passed")]
    assert (workspace / ".slipway" / "inv").is_file()
    assert list((workspace / "dist" / "matrix" / "local").glob("junit.xml"))
