"""Processes: signals end what ./inv started, some outlive it on purpose; locks name holders; copies of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
from core.files import locks
from core.paths import ROOT
from deploy.virtual import machines
from models.reference.host import Forked, can_fork
from tests.support.processes import alive, ended, ran

HEAD = """
from core.cli.request import Request
from core.cli.task import task
from core.processes.commands import process
"""
TASKS = f"""{HEAD}
@task(Request)
def wait(_):
    with process(["sleep", "4242"]) as child:
        print(child.pid, flush=True)
        child.wait()
"""


BEGUN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1] else signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""These tests may be run with either signal ignored, by nohup for example."""


@pytest.mark.parametrize("listening", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_it_started_ends_with_it(tmp_path: Path, number: signal.Signals, listening: bool) -> None:
    """Not listening: started in the background of a script, where shells let Ctrl-C be ignored."""
    (tmp_path / "tasks.py").write_text(TASKS)
    argv = [sys.executable, "-S", str(ROOT / "core" / "cli" / "start.py"), "--search-root", str(tmp_path), "wait"]
    env = {**os.environ, "SLIPWAY_LISTEN": "yes" if listening else "no"}
    words = [sys.executable, "-c", BEGUN, "" if listening else "deaf", *argv]
    with (
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(child.kill)  # or a failed test would wait for ever
        assert child.stdout is not None
        started = int(child.stdout.readline() or child.communicate()[1])
        child.send_signal(number)
        if number == signal.SIGINT and not listening:
            time.sleep(0.3)
            assert child.poll() is None
            assert alive(started)
            child.terminate()
        _, said = child.communicate(timeout=30)
    assert (child.returncode, said) == (130, "Interrupted.\n")
    assert not alive(started)


HALF_MADE = f"""{HEAD}
class File:
    def __del__(self):
        self.begun

@task(Request)
def wait(_):
    file = File()
    raise KeyboardInterrupt
"""


def test_nothing_is_said_of_what_ctrl_c_left_half_made(tmp_path: Path) -> None:
    """paramiko's files are such objects: their end asks for what their beginning would have set."""
    (tmp_path / "tasks.py").write_text(HALF_MADE)
    argv = [sys.executable, "-S", str(ROOT / "core" / "cli" / "start.py"), "--search-root", str(tmp_path), "wait"]
    done = ran(argv, timeout=30)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


HOLDS = """
import sys, time
from pathlib import Path
from core.files import locks
with locks.held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_wait_names_the_holder_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "one.lock"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(lock)], text=True, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
    )  # fmt: skip
    assert first.stdout and first.stdout.readline() == "held\n"
    clock = locks.Clock()
    before = locks.waited()
    # A process of its own kills it: this one waits.
    kill = "import os, sys, time; time.sleep(2.5); os.kill(int(sys.argv[1]), 9)"
    killer = subprocess.Popen([sys.executable, "-c", kill, str(first.pid)])
    with killer, locks.held(lock, "waiting for it"):
        pass
    first.communicate(timeout=60)
    said = " ".join("".join(capsys.readouterr()).split())
    assert f"waiting for it: held by process {first.pid} (" in said
    assert locks.waited() - before > 1.5
    assert "after waiting " in str(clock)


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

    def missing(*_: object) -> None:
        time.sleep(0.3)
        raise HostError("There is no torch for Python 3.9.")

    stamp = bootstrap.stamp(tmp_path / "venv", "core")
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    monkeypatch.setattr(bootstrap, "is_installed", lambda _, name: name != "export")
    monkeypatch.setattr(bootstrap, "install", missing)
    monkeypatch.setattr(environment, "venv", lambda: tmp_path / "venv")
    monkeypatch.setattr("toolchains.bundle.builder.build", built)
    words = ["--search-root", str(ROOT), "deploy", "--device", "local", "--model", "mlp"]
    assert main.run(words) == HostError.exit_code
    assert "There is no torch" in capsys.readouterr().err


Start = Callable[[str, str], Forked]
_ECHO = """
import os
def main():
    with os.fdopen(1, "w", buffering=1) as answers:
        for line in os.fdopen(0):
            answers.write(f"{os.getpid()} {line}")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be run."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    ours = [name for name, one in sys.modules.items() if str(getattr(one, "__file__", "")).startswith(f"{tmp_path}")]
    for name in ours:
        del sys.modules[name]


@pytest.fixture
def start(module: Path) -> Iterator[Start]:
    """Starts a copy that runs a module with this name and text."""
    with contextlib.ExitStack() as stack:

        def starting(name: str, text: str) -> Forked:
            (module / f"{name}.py").write_text(text)
            with (module / "log").open("a") as log:
                one = Forked(name, log.fileno())
            for end in (one.stdin, one.stdout):
                stack.callback(end.close)
            stack.callback(one.kill)
            return one

        yield starting


def test_two_at_once_end_by_themselves(start: Start) -> None:
    first, second = start("echo_one", _ECHO), start("echo_two", _ECHO)
    for one in (first, second):  # the first, though the second was made with its pipes open
        one.stdin.close()
        assert one.wait(60) == 0


def test_however_a_copy_ends_the_first_process_is_told(start: Start, module: Path) -> None:
    one = start("crashing", "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGSEGV)")
    assert one.stdout.readline() == ""
    assert one.wait(60) == -signal.SIGSEGV
    one = start("raising", "def main(): raise ValueError('the runtime lacks it')")
    assert one.wait(60) == 1
    assert "ValueError: the runtime lacks it" in (module / "log").read_text()
    one = start("hanging", "import time\ndef main(): time.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.1)
    one.kill()
    assert one.wait(60) == -signal.SIGKILL


def test_a_runtime_with_threads_of_its_own_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork("a_runtime_that_is_not_loaded")
    monkeypatch.setitem(sys.modules, "a_runtime_that_is_loaded", sys)
    assert not can_fork("a_runtime_that_is_loaded")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork("a_runtime_that_is_not_loaded")


_FIRST = """
import atexit, os, signal, sys, time
from models.reference.host import Forked
signal.signal(signal.SIGINT, lambda *_: print("first hears", flush=True))
atexit.register(lambda: print("the end", flush=True))
sys.path.insert(0, sys.argv[1])
one = Forked("echo_there", 2)
one.stdin.write("word\\n"); one.stdin.flush()
print(one.stdout.readline().split()[0], flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def first(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a copy, and the copy's process id."""
    (tmp_path / "echo_there.py").write_text(_ECHO)
    with subprocess.Popen(
        [sys.executable, "-c", _FIRST, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_ctrl_c_reaches_the_first_process_alone(first: tuple[subprocess.Popen[str], int]) -> None:
    process, pid = first
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "first hears\n"
    out, _ = process.communicate("\n", timeout=60)
    assert out == "the end\n"  # once: the copy does not end as the first process does
    assert ended(lambda: alive(pid))


def test_it_ends_after_the_first_process_is_killed(first: tuple[subprocess.Popen[str], int]) -> None:
    process, pid = first
    process.kill()
    assert ended(lambda: alive(pid))
