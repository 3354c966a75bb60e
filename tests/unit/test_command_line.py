"""The command line: what is offered, what is refused, what was meant; names, settings and JSON."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import invoke
import pytest

import tasks
from commands import deploy
from commands.requests import Deploy, Export
from core import console
from core.cli import invoked
from core.cli import request as requesting
from core.cli.request import Reported, check_settings
from core.cli.task import task
from core.errors import BuildError, ConfigError, UsageError
from core.paths import ROOT
from deploy.devices.inventory import get_device
from deploy.run.settings import Settings
from tests.conftest import Inv
from tests.support.processes import ran

INV = str(ROOT / "inv")


def shown_by(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("words", "what", "rest"),
    [
        (["depoly", "--device", "pi"], "There is no task 'depoly'.", "./inv deploy --device pi"),
        (["deploy", "--devcie=my pi"], "deploy has no option --devcie.", "./inv deploy '--device=my pi'"),
        (["--lst"], "There is no option --lst.", "./inv --list"),
        (["deploy", "--device"], "--device needs a value.", "./inv deploy --help"),
        (["deploy", "pi"], "deploy takes no word 'pi'", "as in --device pi\nTry: ./inv deploy --help"),
        (["devices.stop", "--device", "pi"], "devices.stop has no option --device.", "Try: ./inv devices.stop --help"),
        (["devices.trust"], "devices.trust needs 'name'.", "./inv devices.trust --help"),
        (["inspect"], "inspect needs 'run'.", "Cause: run is a result's name"),
        (["help", "deploy"], "There is no task 'help'.", "or ./inv TASK --help"),
        (["xyzzy"], "There is no task 'xyzzy'.", "./inv --list"),
        (["targets", "deplyo"], "no task has this name", "./inv targets deploy"),
        (["--print-completion-script", "csh"], "the shell 'csh'", "bash, zsh, fish"),
    ],
)
def test_a_slip_of_the_hand_is_answered_with_what_was_meant(inv: Inv, words: list[str], what: str, rest: str) -> None:
    done = inv(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr.splitlines()[0]
    assert rest in done.stderr


def test_called_bare_with_help_and_version(inv: Inv) -> None:
    out = shown_by(inv())
    assert out.startswith("Slipway builds")
    shown = [name for name in tasks.ns.task_names if not name.startswith("self.")]
    assert "\n./inv --list self shows the tasks that prove and measure Slipway itself.\n" in out
    assert sorted(re.findall(r"^  (\S+) ", out, re.MULTILINE)) == sorted(shown)  # each once
    assert set(shown) == {name for names in tasks.HEADINGS.values() for name in names}
    out = shown_by(inv("--help"))
    assert "\nDevices:\n  devices.list " in out
    assert "--print-completion-script SHELL" in out
    assert "prompt-for-sudo-password" not in out
    assert shown_by(inv("--version")) == f"Slipway {invoked.version()}\n"
    assert f'\nversion = "{invoked.version()}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "some", "others"),
    [
        (["dep"], ["deploy"], ["devices.add"]),
        (["deploy", ""], ["deploy", "targets"], ["--device"]),
        (["deploy", "--dev"], ["--device"], ["--devices"]),
        (["deploy", "--json", "-"], ["--device", "--help"], ["--devices"]),
        (["deploy", "--device", "p"], ["pi", "phone"], ["local"]),
        (["deploy", "--device", "pi", "--scheme", "q"], ["qs8"], ["fp32"]),
        (["deploy", "--device=p"], ["--device=pi"], ["--device=local"]),
        (["deploy", "--device", "=", "p"], ["pi"], ["local"]),
        (["deploy", "--device", "="], ["pi", "local"], []),
        (["matrix", "--schemes", "fp32,q"], ["fp32,qs8"], ["qs8"]),
        (["devices.start", "p"], ["pi"], ["local", "deploy"]),
        (["build", "--target", "linux-arm"], ["linux-arm64", "linux-armv7"], ["linux-x86"]),
        (["deploy", "--data", ""], [], ["deploy", "pi"]),
        (["--vers"], ["--version"], []),
        ([], ["deploy"], ["--version"]),
    ],
)
def test_the_shell_is_offered(inv: Inv, words: list[str], some: list[str], others: list[str]) -> None:
    found = shown_by(inv("--complete", "--", *words)).splitlines()
    assert set(some) <= set(found)
    assert not set(others) & set(found)


def test_bash_completes_with_it(inv: Inv) -> None:
    """The script in a real bash, which splits ``--device=p`` into three words."""
    script = shown_by(inv("--print-completion-script", "bash"))
    wanted = {
        "'depl'": "deploy",
        "'deploy' '--device' 'cpu:cortex-a5'": "cpu:cortex-a53",
        "'deploy' '--device' 'cpu' ':' 'cortex-a5'": "cortex-a53",
        "'deploy' '--device' '=' 'cpu' ':' 'cortex-a5'": "cortex-a53",
        "'deploy' '--device' 'cpu' ':' 'cortex-a53' '--schem'": "--scheme",
    }
    lines = "".join(
        f'COMP_WORDS=({INV} {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _slipway; echo "${{COMPREPLY[@]}}"\n'
        for typed in wanted
    )
    done = ran(["bash", "--norc", "-c", f"{script}\n{lines}"])
    assert (done.stdout.splitlines(), done.stderr) == ([*wanted.values()], "")


@pytest.mark.parametrize(
    ("found", "environ", "said"),
    [
        ({"devcie": "pi"}, {}, "did you mean device?"),
        ({"xyzzy": 1}, {}, "the settings are device, model"),
        ([], {}, "not a table"),
        ({}, {"INVOKE_SLIPWAY_MODLE": "mlp"}, "did you mean INVOKE_SLIPWAY_MODEL?"),
        ({}, {"INVOKE_SLIPWAY_": "mlp"}, "the settings are INVOKE_SLIPWAY_DEVICE"),
    ],
)
def test_settings_that_nothing_reads_are_refused(found: object, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_settings(found, ["device", "model"], environ)


def test_the_current_folders_settings_come_over_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "invoke.yaml").write_text("slipway:\n  device: a-device\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program = invoked.Slipway()
    program.create_config()
    program.parse_core(["./inv", "--search-root", str(ROOT), "targets"])
    program.parse_collection()
    program.parse_tasks()
    program.update_config()
    program.config.load_collection(program.collection.configuration())
    request = Deploy(program.config["slipway"])
    assert (request.device, request.model) == ("a-device", tasks.DEFAULTS["model"])
    assert Deploy(program.config["slipway"], device="pi").device == "pi"


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from elsewhere, whose ``invoke.yaml`` would run two files of it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(requesting, "_code", {})
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n", encoding="utf-8")
    (folder / "invoke.yaml").write_text(
        "tasks:\n  executor_class: evil.Executor\nslipway:\n  model: evil.py:make\n  scheme: qs8\n", encoding="utf-8"
    )
    return folder


def test_a_foreign_folder_runs_nothing_by_itself(foreign: Path) -> None:
    for words, code in ((["targets", "--json"], 0), (["deploy"], UsageError.exit_code)):
        env = {**os.environ, "PYTHONPATH": str(foreign)}
        done = ran([INV, *words], cwd=foreign, env=env, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stderr
    assert "sets model: evil.py:make, which is Python code" in done.stderr
    assert "Try: if you trust it: the same command with --model evil.py:make" in done.stderr
    assert not (foreign / "ran").exists()


def test_a_folder_is_agreed_to_once(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"tasks": {"executor_class": "evil.Executor"}, "slipway": {"model": "evil.py:make", "scheme": "qs8"}}
    assert requesting.settings_of(foreign, found, foreign) == found, "a part of the checkout"
    assert requesting.settings_of(foreign, found, ROOT) == {"slipway": found["slipway"]}
    assert Export({"scheme": "qs8"}, model="evil.py:make").scheme == "qs8", "the user's own word: nothing is asked"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for answer, file, asked in (("no", "", True), ("yes", "", True), ("", "", False), ("no", "# changed\n", True)):
        (foreign / "invoke.yaml").write_text((foreign / "invoke.yaml").read_text() + file, encoding="utf-8")
        answers = io.StringIO(f"{answer}\n")
        monkeypatch.setattr(answers, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", answers)
        if answer == "no":
            with pytest.raises(UsageError, match=r"evil\.py:make"):
                Export(found["slipway"])
        else:
            assert Export(found["slipway"]).model == "evil.py:make"
        assert (answers.tell() > 0) is asked


@pytest.mark.parametrize(
    ("text", "said"),
    [("  devcie: pi\n", "did you mean device?"), ("  device: [\n", "invoke.yaml is not YAML, line 3.")],
)
def test_wrong_settings_in_the_current_folder_stop_before_the_task(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "invoke.yaml").write_text(f"slipway:\n{text}", encoding="utf-8")
    done = ran([INV, "targets"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (ConfigError.exit_code, "")
    assert said in done.stderr
    assert "Try: " in done.stderr


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
