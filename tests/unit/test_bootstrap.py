"""The environment's installer: a Ctrl-C at the worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import environment
from core.environment import bootstrap, installer
from core.environment.install_bar import Size
from core.paths import ROOT


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT is Ctrl-C, even where what started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_pip_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None) -> None:
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def starting(*words: Any, **settings: Any) -> subprocess.Popen[str]:
        child: subprocess.Popen[str] = popen(*words, **settings)
        started.append(child)
        os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(subprocess, "Popen", starting)
    with pytest.raises(KeyboardInterrupt), installer.installation(tmp_path, Size("nothing")) as doing:
        doing.install([sys.executable, "-c", "import time; time.sleep(600)"], 1)
    (child,) = started
    assert child.returncode == -signal.SIGKILL


def test_ctrl_c_while_it_is_loaded_is_a_word(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    words = [
        sys.executable,
        "-S",
        str(ROOT / "core" / "cli" / "start.py"),
        "--bootstrap",
        "core",
        str(tmp_path / "venv"),
    ]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "SLIPWAY_LISTEN": "yes"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_kill_ends_the_installation_that_a_command_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None
) -> None:
    """A Ctrl-C that reaches this process alone."""
    begun = subprocess.Popen(
        ["sh", "-c", f"trap 'exit 130' TERM; echo >{tmp_path}/began; for n in $(seq 150); do sleep 0.1; done"],
        stderr=subprocess.PIPE,
    )
    monkeypatch.setattr(environment, "_begun", lambda *_, **__: begun)

    wait = begun.wait
    calls: list[float | None] = []

    def interrupted(seconds: float | None = None) -> int:
        if not calls:
            calls.append(seconds)
            os.kill(os.getpid(), signal.SIGINT)
        return wait(seconds)

    monkeypatch.setattr(begun, "wait", interrupted)
    monkeypatch.setattr(bootstrap, "is_installed", lambda *_: False)
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        environment.ensure("test")
    assert begun.returncode == 130


@pytest.mark.parametrize(
    ("system", "machine", "built_for", "words"),
    [
        ("Linux", "x86_64", "x86_64-pc-linux-gnu cpython-311-x86_64-linux-gnu", ""),
        ("Linux", "aarch64", "aarch64-unknown-linux-gnu None", ""),
        ("Darwin", "arm64", "aarch64-apple-darwin24.0.0 cpython-313-darwin", ""),
        ("Linux", "x86_64", "x86_64-alpine-linux-musl cpython-312-x86_64-linux-musl", "musl (Alpine)"),
        ("Linux", "aarch64", "None cpython-313-aarch64-linux-musl", "musl (Alpine)"),
        ("Darwin", "x86_64", "x86_64-apple-darwin23.6.0 cpython-312-darwin", "Intel processors"),
        ("Windows", "AMD64", "None None", "does not run on Windows itself"),
    ],
)
def test_a_machine_without_the_packages_is_refused_at_the_door(
    system: str,
    machine: str,
    built_for: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    triple, soabi = (None if word == "None" else word for word in built_for.split())
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sysconfig.get_config_var", {"HOST_GNU_TYPE": triple, "SOABI": soabi}.get)
    monkeypatch.setattr(bootstrap, "_make_venv", lambda venv: installer.fail("went on", "", ""))
    assert bootstrap.guarded(["core", str(tmp_path / "venv")]) == 4
    lines = capsys.readouterr().err.splitlines()[-3:]
    assert (words or "went on") in lines[0]
    assert [line.partition(":")[0] for line in lines[1:]] == ["Cause", "Try"]
    assert not (tmp_path / "venv").exists()
