"""The workflow for GitHub Actions: YAML, least rights, nothing expanded inside a script, commands that exist."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import yaml

import tasks
from core.paths import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def workflow(request: pytest.FixtureRequest) -> Any:
    return yaml.safe_load(request.param.read_text(encoding="utf-8"))


def _steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_is_the_device_matrix() -> None:
    assert [file.name for file in FILES] == ["device-matrix.yml"]


def test_it_may_read_and_nothing_else(workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow)


def test_scripts_get_values_through_the_environment(workflow: Any) -> None:
    """An expression inside a script would run whatever an input holds."""
    scripts = [step["run"] for step in _steps(workflow) if "run" in step]
    assert len(scripts) >= 4
    assert [script for script in scripts if "${{" in script] == []
    for script in scripts:
        for word in re.findall(r'"?\$[A-Za-z_]\w*"?', script):
            assert word.startswith('"'), f"{word} is not quoted: {script}"


def test_actions_are_commits_and_jobs_have_an_end(workflow: Any) -> None:
    """A tag may be moved to other code."""
    used = [step["uses"] for step in _steps(workflow) if "uses" in step]
    assert len(used) >= 4
    assert [each for each in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", each)] == []
    assert all(job["timeout-minutes"] <= 120 for job in workflow["jobs"].values())


def test_its_commands_exist(workflow: Any) -> None:
    # Not Invoke's get_arguments: it takes the help texts away from whoever asks next.
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(tasks.matrix.body).parameters}
    scripts = "\n".join(step["run"] for step in _steps(workflow) if "run" in step)
    assert set(re.findall(r"\./inv ([a-z.]+)", scripts)) == {"matrix"}
    used = set(re.findall(r"(--[a-z-]+)", scripts))
    assert used == {"--print-matrix", "--only", "--name", "--baseline", "--fail-on-regression"}
    assert used <= options


def test_what_a_job_uses_of_the_matrix_is_printed(workflow: Any) -> None:
    from deploy.matrix.report import _job
    from tests.support.matrices import cell

    given = set(_job("pi", "linux-arm64", "lean", [cell()]))
    used = set(re.findall(r"matrix\.(\w+)", str(workflow["jobs"]["run"])))
    assert {"name", "only", "target", "engine"} <= used - {"outputs"}
    assert used <= given | {"outputs"}
