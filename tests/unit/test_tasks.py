"""The surface: names, help texts, settings from the command line and the environment."""

from __future__ import annotations

import json
import subprocess
import sys

import invoke
import pytest

import tasks
from commands import deploy
from commands.requests import Deploy
from core import console
from core.cli.request import Reported
from core.cli.task import task
from core.errors import BuildError, UsageError
from core.paths import ROOT
from deploy.devices.inventory import get_device
from deploy.run.settings import Settings


def test_listing_imports_nothing_heavy() -> None:
    heavy = ("torch", "executorch", "paramiko", "conan", "numpy", "pydantic", "rich", "elftools", "requests")
    code = f"import sys, tasks; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_threads_have_a_bound() -> None:
    with pytest.raises(UsageError, match="at least 0 and at most 1024"):
        Settings.parse({"cpu_threads": "100000"})
    assert Settings.parse({"cpu_threads": "1024"}).threads == 1024


@pytest.mark.parametrize("own", [False, True])
def test_json_is_one_document(own: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails after it printed what it found prints no second document."""
    monkeypatch.setattr("core.environment.enter", lambda: None)

    @task(Reported)
    def failing(_: Reported) -> None:
        """Fail."""
        if own:
            console.print_json({"builds": ["failed"]})
        raise BuildError("1 build failed.", "", "")

    with pytest.raises(invoke.exceptions.Exit) as caught:
        failing(invoke.Context(), json=True)
    assert caught.value.code == BuildError.exit_code
    said = json.loads(capsys.readouterr().out)
    assert said == {"builds": ["failed"]} if own else said["error"] == "build"


@pytest.mark.parametrize("typed", [set(), {"etdump"}, {"values"}])
def test_how_a_program_runs_is_what_was_typed(typed: set[str]) -> None:
    found = deploy._settings(Deploy(tasks.DEFAULTS, **dict.fromkeys(typed, True)), get_device("local"), "lean")
    assert (found.values, found.etdump) == ("values" in typed, bool({"etdump", "values"} & typed))


def test_a_request_is_frozen_and_knows_what_was_typed() -> None:
    request = Deploy({"device": "pi", "target": "linux-arm64"}, engine="lean", json=False)
    assert (request.device, request.target, request.engine) == ("pi", "", "lean")
    assert request.typed == {"engine"}
    with pytest.raises(AttributeError, match="frozen"):
        request.device = "phone"
    with pytest.raises(TypeError, match="modle"):
        Deploy(modle="mlp")
