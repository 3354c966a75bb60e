"""Run a composite action of GitHub's: its script steps as a runner would, with a shell, files and the environment."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_SHELLS = {"sh": ["sh", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
"""As GitHub's documentation has them (jobs.<job_id>.steps[*].shell)."""
_VALUE = re.compile(r"\$\{\{\s*(?:inputs\.([\w-]+)|steps\.([\w-]+)\.outputs\.([\w-]+))\s*\}\}")


@dataclass
class Ran:
    code: int = 0
    printed: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)


def outputs_of(text: str) -> dict[str, str]:
    """A file of outputs: ``name=value`` lines, or ``name<<word``, lines, ``word``."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, mark, end = line.partition("<<")
        if mark and "=" not in name:
            value: list[str] = []
            for part in lines:
                if part == end:
                    break
                value.append(part)
            found[name] = "\n".join(value)
        else:
            name, mark, value_text = line.partition("=")
            assert mark, line
            found[name] = value_text
    return found


def run_action(
    folder: Path, inputs: Mapping[str, str], workspace: Path, work: Path, env: Mapping[str, str] | None = None
) -> Ran:
    """Run the script steps of the action in ``folder``; a step that fails ends it, as on GitHub.

    Args:
        workspace: the folder with the user's repository.
        work: an empty folder for the runner's files.
    """
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
                **(env or {}), **{name: value(str(text)) for name, text in step.get("env", {}).items()},
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
