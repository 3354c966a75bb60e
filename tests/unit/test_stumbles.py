"""What a newcomer types wrong, and that the answer names the next step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from invoke import exceptions
from invoke.parser import Argument, ParserContext

from core.cli.near import did_you_mean
from core.cli.usage import refused
from core.paths import ROOT
from deploy.matrix.plots import round_steps


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["pi"], "did you mean pi?"),
        (["pi", "pi5"], "did you mean pi or pi5?"),
        (["pi", "pi5", "pi3"], "did you mean pi, pi5 or pi3?"),
    ],
)
def test_names_are_listed_as_in_a_sentence(names: list[str], said: str) -> None:
    assert did_you_mean(names) == said


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


@pytest.mark.parametrize(
    ("low", "high", "steps"),
    [(29.5, 106.4, [40, 60, 80, 100]), (0.68, 0.75, [0.68, 0.70, 0.72, 0.74]), (-0.5, 0.5, [-0.4, -0.2, 0, 0.2, 0.4])],
)
def test_a_plot_has_round_steps(low: float, high: float, steps: list[float]) -> None:
    assert round_steps(low, high) == pytest.approx(steps)
