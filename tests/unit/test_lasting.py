"""Processes that outlive their command, and what is said when a command is interrupted."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import invoke
import pytest

from core import environment
from core.cli import main
from core.cli.request import Request
from core.cli.task import task
from core.environment import bootstrap
from core.errors import HostError
from core.paths import ROOT
from deploy.virtual import machines

MARK = "RUNNER_TRACKING_ID"


def test_a_virtual_device_has_no_mark_of_the_job_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []

    def spawn(*words: Any, **_: Any) -> int:
        started.append(words[2])
        return 1

    monkeypatch.setattr(os, "posix_spawn", spawn)
    monkeypatch.setenv(MARK, "github_1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    log = tmp_path / "log"
    log.touch()
    folder: Any = SimpleNamespace(log=log, path=tmp_path)
    assert machines.spawn_supervisor(folder) == 1
    assert MARK not in started[0]
    assert started[0]["LANG"] == "C.UTF-8"


@pytest.mark.parametrize(
    ("resumes", "said"), [("", "Interrupted."), ("the same command again", "Interrupted.\nTry: the same command again")]
)
def test_ctrl_c_says_how_to_go_on(resumes: str, said: str) -> None:
    class Waiting(Request):
        pass

    Waiting.resumes = resumes

    @task(Waiting)
    def wait(_: Waiting) -> None:
        raise KeyboardInterrupt

    with pytest.raises(invoke.exceptions.Exit) as caught:
        wait(invoke.Context())
    assert (caught.value.message, caught.value.code) == (said, 130)


def test_a_missing_wheel_of_pytorch_is_seen_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is installed beside the build, which ends then."""

    def built(*_: object) -> None:
        time.sleep(30)
        pytest.fail("it built")

    def missing(*_: object, **__: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", "sleep 0.3; exit 4"], stderr=subprocess.PIPE)

    installed = bootstrap.is_installed
    monkeypatch.setattr(bootstrap, "is_installed", lambda venv, name: name != "export" and installed(venv, name))
    monkeypatch.setattr(environment, "_begun", missing)
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path))
    monkeypatch.setattr("toolchains.bundle.builder.build", built)
    words = ["--search-root", str(ROOT), "deploy", "--device", "local", "--model", "mlp"]
    assert main.run(words) == HostError.exit_code
    assert "could not be installed" in capsys.readouterr().err
