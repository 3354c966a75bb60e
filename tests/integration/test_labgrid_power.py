"""A device of a lab that hangs is power-cycled; a lab is reached through an SSH host."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.errors import UnreachableError
from core.paths import ROOT, cache_dir
from deploy.run.events import Event
from tests.faults import server
from tests.faults.tiny import Tiny, small
from tests.support.lab import Lab, Switch, power, service, switching
from tests.support.processes import ran, reserved

__all__ = ["small"]

pytestmark = [pytest.mark.usefixtures("dist"), pytest.mark.virtual]


class Board:
    """A device over SSH, as a process that can be stopped, ended and started."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = reserved()
        self.process: subprocess.Popen[bytes] | None = None
        self.broken = False

    def set_power(self, on: bool) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if on and not self.broken:
            (self.folder / "up").unlink(missing_ok=True)
            argv = [sys.executable, "-m", "tests.faults.server", str(self.folder), str(self.port)]
            self.process = subprocess.Popen(argv, cwd=ROOT)

    def hang(self) -> None:
        """Its kernel stands still: connections are taken, and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)


@dataclass(frozen=True)
class Powered:
    """A lab with a device that has a power switch, and one without."""

    lab: Lab
    board: Board
    switch: Switch
    shelf: server.Device


@pytest.fixture(scope="module")
def powered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Powered]:
    folder = tmp_path_factory.mktemp("powered")
    with ExitStack() as stack:
        board = Board(folder / "board")
        shelf = stack.enter_context(server.serve(folder / "shelf"))
        stack.callback(board.set_power, False)
        board.set_power(True)
        switch = stack.enter_context(switching(board.set_power))
        (folder / "lab").mkdir()
        resources = {
            "board": service(board.port, server.USER) + power(switch.port),
            "shelf": service(shelf.port, server.USER),
        }
        lab = Lab(folder / "lab", resources)
        stack.callback(lab.close)
        lab.wait((board.folder / "up").exists)
        yield Powered(lab, board, switch, shelf)


def test_a_device_that_hangs_is_power_cycled(
    tmp_path: Path, powered: Powered, small: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host *\n  ConnectTimeout 2\n")  # it is silent: shortens the wait for it
    monkeypatch.setenv("HOME", str(tmp_path))
    lab, board, calls = powered.lab, powered.board, powered.switch.calls
    said: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "note":
            said.append(event.text)

    device = lab.device("board", board.folder / "id", board.folder / "known_hosts")
    result = small.deploy(device)
    assert (calls, result.power_cycled) == ([], "")
    board.hang()
    with pytest.raises(UnreachableError):
        small.deploy(device.model_copy(update={"power_cycle": False}))
    assert calls == [], "the inventory forbids it"
    result = small.deploy(device, listeners=[listen])
    assert calls == ["off", "on"]
    assert result.power_cycled.startswith("desk at 127.0.0.1")
    assert said[0].startswith(result.power_cycled)
    assert said[0].endswith("Cycling the power of its place board.")
    assert lab.holder("board") == ""
    # A device that stays dead: once is enough, and the error says what was done.
    board.broken = True
    board.hang()
    with pytest.raises(UnreachableError) as caught:
        small.deploy(device.model_copy(update={"boot_seconds": 1.0}), retries=1)
    assert "its power was cycled" in caught.value.cause
    assert calls == ["off", "on"] * 2
    assert lab.holder("board") == ""


def test_coordinator_and_device_through_an_ssh_host(tmp_path: Path, powered: Powered) -> None:
    """LG_PROXY, as labgrid's own client has it: by the user's ssh, and by Slipway's own for the device."""
    lab, board = powered.lab, powered.shelf
    with server.serve(tmp_path / "gate") as gate:
        config = tmp_path / ".ssh/config"
        config.parent.mkdir()
        config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User {server.USER}\n"
            f"  IdentityFile {gate.client_key}\n  UserKnownHostsFile {gate.known_hosts}\n"
        )
        # OpenSSH reads the file below the home that the system has for the user, whatever HOME says.
        (tmp_path / "bin").mkdir()
        ssh = shutil.which("ssh")
        assert ssh
        (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {config} "$@"\n')
        (tmp_path / "bin/ssh").chmod(0o755)
        inventory = tmp_path / "devices.toml"
        inventory.write_text(
            f'[desk]\ntransport = "ssh"\nsource = "labgrid"\nkey = "{board.client_key}"\n'
            f'known_hosts = "{board.known_hosts}"\n'
        )
        environment = {
            **os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "LG_COORDINATOR": lab.address, "LG_PLACE": "shelf", "SLIPWAY_CACHE": str(cache_dir()),
            "SLIPWAY_DEVICES_FILE": str(inventory),
        }  # fmt: skip
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\necho from the board\n")

        def run(proxy: str) -> subprocess.CompletedProcess[str]:
            argv = [str(ROOT / "inv"), "devices.run", "desk", str(script)]
            return ran(argv, env={**environment, "LG_PROXY": proxy})

        done = run("gate")
        assert (done.returncode, done.stdout) == (0, "from the board\n"), done.stderr
        assert gate.forwarded == [int(lab.address.rpartition(":")[2]), board.port]
        assert lab.holder("shelf") == ""
        done = run("nowhere.invalid")
        assert done.returncode == UnreachableError.exit_code
        assert f"The labgrid coordinator {lab.address} cannot be reached through nowhere.invalid." in done.stderr


def test_an_exporter_may_be_the_only_way(
    tmp_path: Path, powered: Powered, small: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is exported with --isolated is reached through the exporter's own sshd."""
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    lab, board = powered.lab, powered.shelf
    with server.serve(tmp_path / "gate") as gate:
        lab.export("rack2", {"far": service(board.port, server.USER)}, "--isolated")
        (tmp_path / ".ssh/config").write_text(
            f"Host {socket.getfqdn()}\n  HostName 127.0.0.1\n  Port {gate.port}\n  User {server.USER}\n"
            f"  IdentityFile {gate.client_key}\n  UserKnownHostsFile {gate.known_hosts}\n"
        )
        small.deploy(lab.device("far", board.client_key, board.known_hosts))
        assert gate.forwarded == [board.port]
