"""Virtual devices without QEMU: state on disk, whom `stop` ends, the supervisor; and what a machine is given."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.paths import ROOT
from deploy.virtual import machines as virtual
from deploy.virtual.supervisor import Folder, Launch, State, read_state
from tests.support.processes import alive, ended, wait_for

# Stands for QEMU: listens where it is told, like a forwarded port, and says which process it is.
MACHINE = """
import os, socket, sys, time
open(sys.argv[2], "w").write(str(os.getpid()))
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
kept = []
while True:
    kept.append(server.accept())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The state folder of ``pi``, empty."""
    monkeypatch.setenv("SLIPWAY_DEVICES", str(tmp_path / "devices"))
    return Folder.of("pi")


def test_what_is_not_ours_is_not_ended(folder: Folder) -> None:
    """Whatever a file says of a machine that ended: its number may be anybody's now."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        State(sleeper.pid, 1, ready=True).write(folder.state)
        assert read_state(folder) is None
        assert str(virtual.status("pi")) == "down"
        assert virtual.stop("pi") is False
        assert sleeper.poll() is None
        sleeper.kill()


def test_stop_all_ends_what_is_ours_and_tells_which(folder: Folder) -> None:
    assert virtual.stop_all() == []
    formerly = Folder.of("formerly")
    with up(formerly) as (child, state):
        replace(state, ready=True).write(formerly.state)
        assert virtual.up(formerly) is not None
        assert str(virtual.status("pi")) == "down"
        assert virtual.stop_all() == ["formerly"]
        child.wait(10)
        assert not alive(machine(formerly))
    assert virtual.stop_all() == []
    for damaged in ("", "[]", "{}", '{"pid": 1}', '{"supervisor": 1, "qemu": 2}'):
        folder.state.write_text(damaged)
        assert read_state(folder) is None


@contextlib.contextmanager
def supervised(folder: Folder, open_files: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor that ends its machine after ten idle minutes, and inherits ``open_files``."""
    Launch((sys.executable, "-c", MACHINE, "{port}", str(folder.path / "machine.pid")), 600).write(folder)
    with folder.log.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "deploy.virtual.supervisor", folder.path],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=open_files,
        )  # fmt: skip
    with child:
        try:
            wait_for(lambda: read_state(folder) or child.poll() is not None)
            yield child
        finally:
            child.kill()


@contextlib.contextmanager
def up(folder: Folder) -> Iterator[tuple[subprocess.Popen[bytes], State]]:
    """The same, once its machine is up."""
    with supervised(folder) as child:
        state = read_state(folder)
        assert state is not None, folder.log.read_text()
        wait_for((folder.path / "machine.pid").exists)
        yield child, state


def machine(folder: Folder) -> int:
    """The process of what stands for QEMU."""
    return int((folder.path / "machine.pid").read_text())


def let_be_idle(folder: Folder, seconds: float) -> None:
    """As if it had not been used for so long."""
    then = time.time() - seconds
    os.utime(folder.last_used, (then, then))


def test_an_open_connection_and_use_keep_the_machine(folder: Folder) -> None:
    with up(folder) as (child, state):
        with socket.socket() as client:
            wait_for(lambda: client.connect_ex(("127.0.0.1", state.port)) == 0)
            let_be_idle(folder, 601)
            wait_for(lambda: folder.idle_seconds() < 300 or child.poll() is not None)
            assert child.poll() is None
            assert read_state(folder) == state
        let_be_idle(folder, 599)
        folder.touch()
        time.sleep(2.5)
        assert child.poll() is None
        while child.poll() is None:  # once more, as long as it still saw the connection
            let_be_idle(folder, 601)
            time.sleep(0.1)
        assert child.returncode == 0
        assert not alive(machine(folder))


def test_the_machine_dies_with_its_supervisor(folder: Folder) -> None:
    with up(folder) as (child, _):
        child.kill()
        child.wait()
        assert ended(lambda: alive(machine(folder)))
        assert str(virtual.status("pi")) == "down"
        assert virtual.stop("pi") is False


def test_a_removed_folder_ends_the_machine(folder: Folder) -> None:
    removed = Folder(folder.path.with_name("pi-removed"))
    with up(folder) as (child, _):
        folder.path.rename(removed.path)
        assert child.wait(60) == 0
        assert not alive(machine(removed))
    assert "was removed: ending the machine" in removed.log.read_text()


def test_a_lock_of_the_caller_is_not_kept_for_as_long_as_the_machine_runs(folder: Folder) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as reader, supervised(folder, (theirs,)) as child:
        os.close(theirs)
        assert select.select([reader], [], [], 60)[0], "somebody holds the other end"
        assert reader.read() == b""
        assert child.poll() is None
