"""Devices that are places of a real labgrid: its own coordinator and exporter, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import ConfigError, DeviceBusyError, PreflightError, UnreachableError
from deploy.devices.inventory import Device
from deploy.lab.labgrid import VARIABLE, Coordinator, own_name
from deploy.run.connect import ssh_address
from deploy.run.events import Event
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.transport.deadline import NEVER
from deploy.virtual import machines as virtual
from tests.faults import server, tiny
from tests.faults.tiny import Tiny
from tests.support.deploying import Deploying, program
from tests.support.processes import gone, marked
from tests.support.small_program import small_program
from toolchains.build.builder import build
from toolchains.targets import host_target

__all__ = ["program"]

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]

HERE = Path(sys.executable).parent


class Lab:
    """A coordinator, an exporter of ``services``, and a place for each."""

    def __init__(self, folder: Path, services: dict[str, tuple[int, str]]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        resources = "".join(
            f"{name}:\n  NetworkService:\n    address: 127.0.0.1\n    port: {port}\n    username: {user}\n"
            for name, (port, user) in services.items()
        )
        (folder / "resources.yaml").write_text(resources)
        self.folder = folder
        self.processes = [self._start("labgrid-coordinator", "-l", self.address)]
        self.wait(self._answers)  # an exporter that is started before it is there ends
        self.processes.append(self._start("labgrid-exporter", "-c", self.address, "-n", "rack", "resources.yaml"))
        self.wait(lambda: all(f"rack/{name}/" in self.client("resources") for name in services))
        for name in services:
            self.client("-p", name, "create")
            self.client("-p", name, "add-match", f"rack/{name}/NetworkService")
        self.client("-p", next(iter(services)), "add-alias", "by-another-name")

    def _answers(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{words[0]}.log").open("wb")
        with log:
            return subprocess.Popen([HERE / words[0], *words[1:]], cwd=self.folder, stdout=log, stderr=log)

    def client(self, *words: str, user: str = "") -> str:
        """labgrid's own client."""
        done = subprocess.run(
            [HERE / "labgrid-client", "-x", self.address, *words], cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, **({"LG_USERNAME": user, "LG_HOSTNAME": "elsewhere"} if user else {})}, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def holder(self, place: str) -> str:
        """Who has ``place``; empty for nobody."""
        (line,) = [line for line in self.client("-p", place, "show").splitlines() if "acquired: " in line]
        return line.partition("acquired: ")[2].strip().removeprefix("None")

    @staticmethod
    def wait(happened: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.2)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        ended = [_ended(process) for process in self.processes]
        assert all(ended)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended by itself; it is ended anyway."""
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Device]:
    with server.serve(tmp_path_factory.mktemp("board") / "board") as running:
        (running.home / "precious").write_text("precious")
        yield running


@pytest.fixture(scope="module")
def pi() -> virtual.Endpoint:
    return virtual.ensure("pi")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, board: server.Device, pi: virtual.Endpoint) -> Iterator[Lab]:
    services = {"board": (board.port, server.USER), "pi": (pi.port, pi.user)}
    running = Lab(tmp_path_factory.mktemp("lab"), services)
    yield running
    running.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return tiny.make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def device(lab: Lab, board: server.Device) -> Device:
    return Device(
        name="desk", transport="ssh", source="labgrid", coordinator=lab.address, place="board",
        target=host_target().name, key=Path(board.client_key), known_hosts=Path(board.known_hosts),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _own_results(dist: Path) -> None:
    """Results go to a folder of the test's own."""


def test_a_virtual_pi_in_a_lab(lab: Lab, pi: virtual.Endpoint, program: Path) -> None:
    device = Device(
        name="rack-pi", transport="ssh", source="labgrid", coordinator=lab.address, place="pi", target="linux-arm64",
        key=pi.key, known_hosts=pi.known_hosts, tags=("emulated",),
    )  # fmt: skip
    assert device.emulated
    done = execute(device, small_program("linux-arm64"), ["echo", "from the rack"])
    assert (done.code, done.stdout) == (0, b"from the rack\n")
    assert lab.holder("pi") == ""
    held: list[str] = []

    def listen(event: Event) -> None:
        if (event.step, event.kind) == ("run", "start"):
            held.append(lab.holder("pi"))

    result = deploy(
        device, build("linux-arm64"), program, Settings(num_executions=1, warmup=0, timeout=300), listeners=[listen]
    )  # fmt: skip
    assert (result.device, result.facts.machine, result.verdict) == ("rack-pi", "aarch64", "agrees")
    assert held == [own_name()]
    assert lab.holder("pi") == ""


def test_the_place_is_held_for_the_deploy_and_given_back(
    lab: Lab, device: Device, small: Tiny, board: server.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    small.deploy(device, listeners=[lambda event: seen.append(lab.holder("board")) if event.step == "run" else None])
    assert ssh_address(device).port == board.port, "it can be looked up without being acquired"
    assert seen
    assert all(name and "/" in name for name in seen)
    assert lab.holder("board") == ""
    assert tiny.settled(board.home, board.home / ".slipway") == []
    monkeypatch.setenv(VARIABLE, lab.address)
    small.deploy(device.model_copy(update={"place": "by-another-name", "coordinator": ""}))
    assert lab.holder("board") == ""


def test_what_was_mine_before_stays_mine(lab: Lab, device: Device, small: Tiny) -> None:
    lab.client("-p", "board", "acquire")
    mine = lab.holder("board")
    small.deploy(device)
    assert lab.holder("board") == mine != ""
    lab.client("-p", "board", "release")


def test_a_place_of_somebody_else(lab: Lab, device: Device, small: Tiny) -> None:
    lab.client("-p", "board", "acquire", user="somebody")
    with pytest.raises(DeviceBusyError, match="desk is in use by elsewhere/somebody: the place board is acquired"):
        small.deploy(device)
    assert lab.holder("board") == "elsewhere/somebody"
    lab.client("-p", "board", "release", user="somebody")
    small.deploy(device)


def test_it_is_given_back_after_a_failure(lab: Lab, device: Device, small: Tiny, tmp_path: Path) -> None:
    with pytest.raises(PreflightError):
        execute(device, small_program("linux-arm64"))
    assert lab.holder("board") == ""
    with pytest.raises(ConfigError, match="there is no key file"):
        small.deploy(device.model_copy(update={"key": tmp_path / "none"}))
    assert lab.holder("board") == ""


def test_it_is_given_back_after_ctrl_c(
    lab: Lab, device: Device, small: Tiny, board: server.Device, tmp_path: Path
) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text(
        f'[desk]\ntransport = "ssh"\nsource = "labgrid"\ncoordinator = "{lab.address}"\nplace = "board"\n'
        f'key = "{device.key}"\nknown_hosts = "{device.known_hosts}"\n'
    )
    running = Deploying(inventory, "desk", small.bundle, small.model, 5000)
    running.wait_for(lambda: ["sleep", "4242"] in marked(str(board.home)).values())
    assert lab.holder("board") != ""
    running.interrupt()
    assert running.end()[0] == 130
    assert gone(str(board.home))
    assert lab.holder("board") == ""


def test_no_such_place_and_no_coordinator(lab: Lab, device: Device, small: Tiny) -> None:
    with pytest.raises(ConfigError, match="has no place 'bord'") as caught:
        small.deploy(device.model_copy(update={"place": "bord"}))
    assert "board, pi" in caught.value.cause
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UnreachableError, match=f"coordinator {nobody} cannot be reached"):
        Coordinator(device.model_copy(update={"coordinator": nobody}), NEVER)
    lab.client("-p", "board", "add-match", "rack/pi/NetworkService")
    with pytest.raises(ConfigError, match="has several NetworkService"):
        small.deploy(device)
    lab.client("-p", "board", "del-match", "rack/pi/NetworkService")
    assert lab.holder("board") == ""
