"""The supervisor script under this machine's own sh: exit statuses, and that nothing outlives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from core.errors import DeadlineError, RunError
from deploy.transport.base import end_group, run
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport
from deploy.transport.supervise import quoted, supervised
from tests.support.processes import gone, marked

LONG = "4242"


def soon() -> Deadline:
    return Deadline.after(20)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -ILL $$", 132), ("kill -KILL $$", 137)]
)
def test_exit_status(script: str, code: int) -> None:
    done = run(LocalTransport(), ["sh", "-c", script], deadline=soon(), check=False)
    assert done.code == code


def test_a_command_has_its_words_its_folder_and_its_streams(tmp_path: Path) -> None:
    done = run(LocalTransport(), ["sh", "-c", "head -c 300000 /dev/zero; echo oops >&2"], deadline=soon())
    assert (len(done.stdout), done.stderr) == (300000, b"oops\n")
    words = ["a b", "$HOME", "'", '"', "*", "a;b", "\\", "-n", "ü", "a\nb"]
    done = run(LocalTransport(), ["printf", "%s|", *words], deadline=soon())
    assert done.text == "|".join(words) + "|"
    line = quoted(["printf", "%s|", *words])
    by_a_shell = subprocess.run(["sh", "-c", line], capture_output=True, check=True)
    assert by_a_shell.stdout.decode() == done.text
    folder = tmp_path / "a b"
    folder.mkdir()
    done = run(LocalTransport(), ["sh", "-c", 'pwd; echo "$WORD"'], deadline=soon(), cwd=str(folder),
               env={"WORD": "x y"})  # fmt: skip
    assert done.text.splitlines() == [str(folder), "x y"]


def test_a_missing_program_and_a_failure() -> None:
    assert run(LocalTransport(), ["/nowhere/at-all"], deadline=soon(), check=False).code == 127
    with pytest.raises(RunError, match="while testing") as caught:
        run(LocalTransport(), ["sh", "-c", "echo why >&2; exit 1"], deadline=soon(), doing="testing")
    assert caught.value.cause == 'local says: "why"'


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_deadline_ends_the_whole_group(tmp_path: Path, trap: str) -> None:
    mark = str(tmp_path)
    script = f"{trap} sleep {LONG} & sleep {LONG}"
    begun = time.monotonic()
    with pytest.raises(DeadlineError, match="while running"):
        run(LocalTransport(), ["sh", "-c", script, mark], deadline=Deadline.after(0.5), cwd=mark)
    assert time.monotonic() - begun < 60
    assert gone(mark)


def test_losing_the_lifeline_or_the_time_ends_the_group(tmp_path: Path) -> None:
    mark = str(tmp_path)
    child = subprocess.Popen(supervised(["sh", "-c", f"sleep {LONG} & sleep {LONG}"], seconds=99, cwd=mark),
                             stdin=subprocess.PIPE, start_new_session=True)  # fmt: skip
    while len(marked(mark)) < 3:
        time.sleep(0.02)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 143
    assert gone(mark)
    mark = str(tmp_path)
    argv = supervised(["sleep", LONG], seconds=-4, cwd=mark)  # five more are granted by the device
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    assert child.wait(60) == 143
    assert child.stdin is not None
    child.stdin.close()
    assert gone(mark)


@pytest.mark.parametrize("after", [0.0, 0.3])
def test_losing_the_lifeline_before_the_group_is_there(tmp_path: Path, after: float) -> None:
    mark, slow = str(tmp_path), tmp_path / "bin" / "setsid"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\n{shutil.which("sleep")} 1\nexec {shutil.which("setsid")} "$@"\n')
    slow.chmod(0o755)
    child = subprocess.Popen(supervised(["sleep", LONG], seconds=99, cwd=mark), stdin=subprocess.PIPE,
                             env={**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"})  # fmt: skip
    time.sleep(after)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 143
    assert gone(mark)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    mark = str(tmp_path)
    run(LocalTransport(), ["sh", "-c", f"sleep {LONG} >/dev/null 2>&1 & exit 0"], deadline=soon(), cwd=mark)
    assert gone(mark)
    mark = str(tmp_path)
    for _ in range(10):
        run(LocalTransport(), ["true"], deadline=soon(), cwd=mark)
    assert gone(mark)


def test_ending_from_outside(tmp_path: Path) -> None:
    mark, pidfile = str(tmp_path), tmp_path / "pid"
    argv = supervised(["sh", "-c", f"trap '' TERM; sleep {LONG}"], seconds=99, cwd=mark, pidfile=str(pidfile))
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    while not pidfile.exists() or not pidfile.read_text():
        time.sleep(0.02)
    assert end_group(LocalTransport(), str(pidfile))
    child.wait(60)
    assert child.stdin is not None
    child.stdin.close()
    assert gone(mark)


@pytest.mark.parametrize("text", ["", "x; rm -rf /", "-1", "$(id)"])
def test_a_bad_pid_file_ends_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert end_group(LocalTransport(), str(tmp_path / "pid"))
    assert os.getpid()


def test_output_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.errors import TransferError

    monkeypatch.setattr("deploy.transport.base.MAX_OUTPUT", 1 << 20)
    with pytest.raises(TransferError, match="printed more than 1 MiB"):
        run(LocalTransport(), ["yes"], deadline=soon(), cwd=str(tmp_path))
    assert gone(str(tmp_path))
