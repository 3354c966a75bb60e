"""Signals that end ``./inv``: whatever it started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.paths import ROOT

TASKS = """
from core.cli.task import task
from core.processes.commands import process

@task(help={})
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


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


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
            assert not _gone(started)
            child.terminate()
        _, said = child.communicate(timeout=30)
    assert (child.returncode, said) == (130, "Interrupted.\n")
    assert _gone(started)


HALF_MADE = """
from core.cli.task import task

class File:
    def __del__(self):
        self.begun

@task(help={})
def wait(_):
    file = File()
    raise KeyboardInterrupt
"""


def test_nothing_is_said_of_what_ctrl_c_left_half_made(tmp_path: Path) -> None:
    """paramiko's files are such objects: their end asks for what their beginning would have set."""
    (tmp_path / "tasks.py").write_text(HALF_MADE)
    argv = [sys.executable, "-S", str(ROOT / "core" / "cli" / "start.py"), "--search-root", str(tmp_path), "wait"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
