"""The files for other people's CI: schemas, least rights, no expression inside a script, commands that exist."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import tasks
from core.paths import ROOT
from tests.support.processes import ran, well
from verify.suite import shells

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MATRIX = ROOT / ".github" / "workflows" / "matrix.yml"
ACTION = ROOT / "action.yml"
TEMPLATE = ROOT / "templates" / "matrix.yml"
TEXT = re.compile(r"\$\[\[ inputs\.(\w+) \]\]")


def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _template() -> tuple[Any, Any]:
    spec, jobs = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
    return spec, jobs


def _steps(file: Path) -> list[dict[str, Any]]:
    found = _read(file)
    jobs = found["jobs"].values() if "jobs" in found else [found["runs"]]
    return [step for job in jobs for step in job.get("steps", [])]


def _tool(name: str, *words: str | Path) -> None:
    well(ran([Path(sys.executable).with_name(name), *words], cwd=ROOT))


def test_they_fit_the_schemas_of_their_systems(tmp_path: Path) -> None:
    _tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)
    _tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", ACTION)
    spec, jobs = _template()
    assert list(spec) == ["spec"]
    defaults = {name: given["default"] for name, given in spec["spec"]["inputs"].items()}
    assert [] not in defaults.values()  # GitLab's schema of today refuses empty lists of tags and others
    file = tmp_path / "jobs.yml"
    file.write_text(yaml.safe_dump(filled(defaults, jobs)), encoding="utf-8")
    _tool("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", file)


def filled(inputs: Mapping[str, Any], value: Any) -> Any:
    """GitLab's interpolation: a value that is nothing but an input keeps the input's type."""
    if isinstance(value, dict):
        return {filled(inputs, key): filled(inputs, each) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(inputs, each) for each in value]
    if not isinstance(value, str):
        return value
    whole = TEXT.fullmatch(value)
    return inputs[whole[1]] if whole else TEXT.sub(lambda found: str(inputs[found[1]]), value)


def test_what_is_known_to_be_unsafe_is_not_there() -> None:
    """Expressions in scripts, actions by tags, too many rights, credentials left behind, and more."""
    _tool("zizmor", "--offline", "--no-progress", "--quiet", "--persona", "regular", *WORKFLOWS, ACTION)
    _tool("hadolint", ROOT / ".ci/Containerfile")


def test_shellcheck_reads_their_scripts(tmp_path: Path) -> None:
    files = []
    for file in (*WORKFLOWS, ACTION):
        for index, step in enumerate(step for step in _steps(file) if "run" in step):
            assert "${{" not in step["run"], "an expression inside a script would run whatever an input holds"
            files.append(tmp_path / f"{file.stem}-{index}.sh")
            variables = "".join(f"{name}=x\n" for name in step.get("env", {}))
            files[-1].write_text(f"#!/bin/sh\n{variables}{step['run']}", encoding="utf-8")
    _, jobs = _template()
    for name, job in jobs.items():
        for part in ("before_script", "script"):
            for index, text in enumerate(job.get(part, [])):
                assert "$[[" not in text
                files.append(tmp_path / f"{TEXT.sub('job', name).strip('.')}-{part}-{index}.sh")
                files[-1].write_text(f'#!/bin/sh\n: "${{SLIPWAY:=}}"\n{text}\n', encoding="utf-8")
    assert len(files) >= 6
    rules = "disable=SC2154,SC2034\n"  # variables of the job, and those that a later script uses
    (tmp_path / ".shellcheckrc").write_text(rules, encoding="utf-8")
    done = shells.check(files, tmp_path)
    assert done.returncode == 0, done.stdout


def test_actions_are_commits_and_jobs_have_an_end() -> None:
    """A tag may be moved to other code; ``$/`` is this repository at the commit that runs."""
    used = [step["uses"] for file in (*WORKFLOWS, ACTION) for step in _steps(file) if "uses" in step]
    assert len(used) >= 7
    assert [each for each in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}|\$/", each)] == []
    for file in WORKFLOWS:
        workflow = _read(file)
        for job in workflow["jobs"].values():
            if "uses" in job:
                continue
            minutes = job["timeout-minutes"]
            if minutes == "${{ inputs.timeout }}":
                # YAML 1.1 reads the key `on` as true.
                minutes = workflow[True]["workflow_call"]["inputs"]["timeout"]["default"]
            assert int(minutes) <= 120


def test_the_inputs_that_are_passed_exist() -> None:
    action = _read(ACTION)
    inputs = _read(MATRIX)[True]["workflow_call"]["inputs"]
    for step in _steps(MATRIX):
        if step.get("uses") == "$/":
            assert set(step["with"]) <= set(action["inputs"])
    caller = _read(MATRIX.with_name("device-matrix.yml"))["jobs"]["cells"]["with"]
    assert set(caller) <= set(inputs)
    assert set(re.findall(r"inputs\.(\w+)", MATRIX.read_text(encoding="utf-8"))) == set(inputs)
    spec, jobs = _template()
    assert set(TEXT.findall(yaml.safe_dump(jobs))) == set(spec["spec"]["inputs"])


def test_their_options_exist() -> None:
    # Not Invoke's get_arguments: it takes the help texts away from whoever asks next.
    taken = [name for task in ("matrix", "test") for name in inspect.signature(tasks.ns[task].body).parameters]
    options = {f"--{name.replace('_', '-')}" for name in taken}
    used: set[str] = set()
    for file in (*WORKFLOWS, TEMPLATE):
        used |= set(re.findall(r"(?<= )(--[a-z-]+)(?==|\s|$)", file.read_text(encoding="utf-8")))
    used -= {"--no-install-recommends", "--depth", "--force", "--global", "--add"}
    assert {"--models", "--schemes", "--engines", "--merge", "--baseline", "--name", "--shard"} <= used
    assert used <= options, used - options
