"""What a newcomer types wrong, and that the answer names the next step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from invoke import exceptions
from invoke.parser import Argument, ParserContext

from core.cli.usage import refused
from core.paths import ROOT


@pytest.mark.parametrize(
    ("words", "command"),
    [(["help", "deploy"], "./inv deploy --help"), (["help"], "./inv --help"), (["help", "x"], "./inv --help")],
)
def test_help_as_a_task_is_answered_with_the_option(words: list[str], command: str) -> None:
    error = refused(exceptions.ParseError("No idea what 'help' is!"), words, ["deploy", "build"], None)
    assert error.hint == command


def test_a_missing_argument_is_explained() -> None:
    context = ParserContext("inspect", args=[Argument(name="run", positional=True, help="a folder of results")])
    error = exceptions.ParseError("'inspect' did not receive required positional arguments: 'run'", context)
    assert refused(error, ["inspect"], ["inspect"], None).cause == "run is a folder of results"


def test_a_broken_settings_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "invoke.yaml").write_text("slipway:\n  device: [\n")
    done = subprocess.run(
        [str(ROOT / "inv"), "devices.list"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"{tmp_path / 'invoke.yaml'} is not YAML, line 3." in done.stderr
    assert "Try: correct" in done.stderr
