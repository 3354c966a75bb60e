"""A module's ``main`` in a copy of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.paths import ROOT
from models.reference.host import Forked, can_fork
from tests.support.processes import alive, ended

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
    for name in [
        name for name, one in sys.modules.items() if str(getattr(one, "__file__", "")).startswith(f"{tmp_path}")
    ]:
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


def test_torch_has_one_thread_in_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process's threads are not in a copy; tests/integration/test_shortcuts.py sees what torch does then."""
    told: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=told.append, told=told))
    one = start("counting", "import os, torch\ndef main(): os.write(1, f'{torch.told}'.encode())")
    assert (one.stdout.read(), told) == ("[1]", [])


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
        [sys.executable, "-c", _FIRST, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
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
