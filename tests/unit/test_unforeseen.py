"""Whatever is typed or found: words and the exit code of a class, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import invoke
import pytest

import core.errors
import tasks
from core import environment
from core.cli import start
from core.cli import task as errors_of_tasks
from core.cli.request import Reported
from core.cli.task import task
from core.errors import DefectError, HostError, SlipwayError, UsageError
from core.paths import ROOT
from models.request.options import pairs
from tests.conftest import Inv
from tests.support.processes import ran

CODES = {each.exit_code for each in vars(core.errors).values() if isinstance(each, type)
         and issubclass(each, SlipwayError)} - {1, DefectError.exit_code}  # fmt: skip
"""A mistake ends in one of these: not in 0, not in the catch-all, not as our defect."""
BAD = {
    "nonsense": "no such thing / ${HOME} [x]", "long": "x" * 5000, "name": "x" * 240, "bytes": "caf\udce9",
    "number": "-1", "nan": "nan", "path": "../../etc/passwd", "lines": "a\nb\x1b[31m", "empty": "",
}  # fmt: skip


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty dist/ and cache; no program starts, nothing is installed, no name is looked up."""

    def no_program(*words: object, **options: object) -> None:
        raise HostError("This test starts no programs.", str(words[:1]))

    def no_set(name: str) -> None:
        raise HostError("This test installs nothing.", name)

    def no_network(*words: object, **options: object) -> None:
        raise OSError(errno.ENETUNREACH, "This test has no network")

    monkeypatch.setenv("SLIPWAY_DEVICES_FILE", str(tmp_path / "devices.toml"))
    monkeypatch.setattr(environment, "enter", lambda: None)
    monkeypatch.setattr(environment, "ensure", no_set)
    monkeypatch.setattr(subprocess, "Popen", no_program)
    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = [
    (name, argument.name)
    for name in tasks.ns.task_names
    for argument in tasks.ns[name].get_arguments()
    if argument.kind is not bool
]
"""Every option of every task that takes a value."""


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{name}-{option}" for name, option in OPTIONS])
def test_every_option_survives_every_value(name: str, option: str, alone: Path, inv: Inv) -> None:
    """Each option takes one or two of the values, others than its neighbours."""
    wrong = []
    needed = [each.name for each in tasks.ns[name].get_arguments() if each.positional and each.name != option]
    first = zlib.crc32(f"{name} {option}".encode()) % 5
    for kind, value in list(BAD.items())[first::5]:
        done = inv(name, *(f"--{each}=local" for each in needed), f"--{option}={value}")
        code, said = done.returncode, done.stdout + done.stderr
        if "Traceback" in said or code not in CODES | {0} or (code and "Try: " not in said and "Cause: " not in said):
            wrong.append((kind, code, said[-600:]))
    assert wrong == []


@pytest.mark.parametrize("text", ["per_op_mode", "per_op_mode=", "=true", "per_op_mode=true;per_op_mode=false"])
def test_malformed_options_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--options") as caught:
        pairs(text)
    assert "per_op_mode=true" in str(caught.value) or "per_op_mode=false" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--dry", "clean"], 2, "--dry is refused"),
        (["-R", "targets"], 2, "--dry is refused"),
        (["deploy", "--model", "linear", "--scheme", "all"], 2, "./inv matrix"),
        (["deploy", "--model", "all"], 2, "./inv matrix"),
        (["export", "--options", "per_opmode=true"], 3, "did you mean per_op_mode"),
        (["export", "--options", "per_op_mode"], 2, "--options 'per_op_mode=true'"),
        (["self.bench", "--runs", "x"], 2, "--runs 'x' is not a whole number"),
    ],
)
def test_mistakes(words: list[str], code: int, part: str, alone: Path, inv: Inv) -> None:
    kept = alone / "dist" / "programs" / "mlp-fp32"
    kept.mkdir(parents=True)
    done = inv(*words)
    assert (done.returncode, part in done.stderr) == (code, True), done.stderr
    assert kept.is_dir(), "nothing is removed or made"


@pytest.mark.parametrize("variable", ["SLIPWAY_CACHE", "SLIPWAY_DIST", "HOME"])
@pytest.mark.parametrize("kind", ["file", "read-only", "bytes", "nobody"])
def test_folders_that_cannot_be_made(variable: str, kind: str, inv: Inv, tmp_path: Path) -> None:
    """A file in the path, a file system that cannot be written (as /proc is), a name that is not UTF-8, ~nobody."""
    (tmp_path / "file").touch()
    name = {
        "file": f"{tmp_path}/file/below",
        "read-only": "/proc/slipway",
        "bytes": f"{tmp_path}/caf\udce9",
        "nobody": "~no-such-user/x",
    }[kind]
    words = ["models"] if variable == "SLIPWAY_DIST" else ["clean", "--cache"]
    if kind == "bytes":  # a real start, which reads them, too
        done = ran([ROOT / "inv", *words], env={**os.environ, variable: name}, cwd=tmp_path, timeout=120)
    else:
        done = inv(*words, env={variable: name})
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 3, 4}, done.stderr
    if kind == "bytes" or (variable, kind) == ("SLIPWAY_CACHE", "nobody"):
        assert done.returncode == 3, done.stderr
    if kind in {"file", "read-only"} and variable == "SLIPWAY_CACHE":
        assert done.returncode == 4, done.stderr
        assert "SLIPWAY_CACHE" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_what_the_machine_refuses_is_the_machines(number: int) -> None:
    found = errors_of_tasks.understood(OSError(number, os.strerror(number), "/some/file"))
    assert isinstance(found, HostError)
    assert "/some/file" in str(found)


@pytest.mark.parametrize("error", [ValueError("what\udce9 is this"), KeyError("x"), RecursionError("deep"), OSError()])
def test_a_defect_is_called_one(error: Exception, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @task(Reported)
    def failing(_: Reported) -> None:
        raise error

    with pytest.raises(invoke.exceptions.Exit) as caught:
        failing(invoke.Context(), json=True)
    assert caught.value.code == DefectError.exit_code == 70
    assert json.loads(capsys.readouterr().out)["error"] == "defect"
    log = re.search(r"the traceback is in (\S+)", caught.value.message)
    assert log
    assert "Traceback (most recent call last)" in Path(log[1]).read_text(encoding="utf-8")


class _Raising:
    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def _make_a_class() -> None:
    type("Made", (), {"part": _Raising()})


def test_ctrl_c_while_a_class_is_made_is_no_defect(
    alone: Path, inv: Inv, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python up to 3.11 raises a RuntimeError from it: in a task, before one, and while Invoke itself is imported."""

    @task(Reported)
    def making(_: Reported) -> None:
        _make_a_class()

    with pytest.raises(invoke.exceptions.Exit) as caught:
        making(invoke.Context())
    assert (caught.value.code, caught.value.message) == (130, "Interrupted.")
    monkeypatch.setattr("core.cli.main.Slipway.run", lambda *_: _make_a_class())
    done = inv("models")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
    monkeypatch.setattr(start, "finish", lambda: None)
    assert start.ended(_make_a_class) == 130  # type: ignore[arg-type]
    assert capsys.readouterr().err == "Interrupted.\n"


def test_ctrl_c_at_any_moment_of_the_start() -> None:
    """While Python, Invoke and the tasks are imported, and later; in a group of its own, as a terminal sends it."""
    seen = set()
    for step in range(12):
        child = subprocess.Popen(
            [str(ROOT / "inv"), "models", "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        time.sleep(0.05 + step * 0.04)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
        assert "Traceback" not in said, said
        assert child.returncode in {0, 130, -signal.SIGINT}, (child.returncode, said)
        seen.add(child.returncode)
    assert seen & {130, -signal.SIGINT}


def test_posix_locale_and_umlauts(tmp_path: Path) -> None:
    clone = tmp_path / "Übung für Zoë"
    without = shutil.ignore_patterns("dist", ".venv", ".git", "*_cache", "docs", "recipes", "runtime", "tests")
    shutil.copytree(ROOT, clone, ignore=without)
    env = {**os.environ, "LC_ALL": "POSIX", "SLIPWAY_VENV": sys.prefix, "SLIPWAY_DIST": str(clone / "dist")}
    for words in (["devices.list"], ["export", "--model", "fehlt-ü.py:f"], ["clean"]):
        done = ran([clone / "inv", *words], env=env, cwd=clone, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == (3 if words[0] == "export" else 0), done.stderr
