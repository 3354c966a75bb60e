"""Devices that are places of a real labgrid: its own coordinator and exporter, on loopback."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import ConfigError, DeviceBusyError, UnreachableError
from core.formats.bundle import Bundle
from core.paths import ROOT, cache_dir
from deploy.devices.inventory import Device
from deploy.lab.labgrid import COORDINATOR, PLACE
from deploy.run.connect import ssh_address
from deploy.run.events import Event
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.virtual import machines as virtual
from tests.faults import server, tiny
from tests.faults.tiny import Tiny, small
from tests.support.deploying import Deploying
from tests.support.devices import small_program
from tests.support.lab import Lab, service
from tests.support.processes import executable, marked, ran
from toolchains.targets import host_target

__all__ = ["small"]

pytestmark = [pytest.mark.usefixtures("dist"), pytest.mark.virtual, pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Device]:
    with server.serve(tmp_path_factory.mktemp("board") / "board") as running:
        (running.home / "precious").write_text("precious")
        yield running


@pytest.fixture(scope="module")
def pi() -> virtual.Endpoint:
    return virtual.ensure("pi")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, board: server.Device) -> Iterator[Lab]:
    resources = dict.fromkeys(("board", "spare"), service(board.port, server.USER))
    with contextlib.closing(Lab(tmp_path_factory.mktemp("lab"), resources)) as running:
        yield running


@pytest.fixture
def device(lab: Lab, board: server.Device) -> Device:
    return lab.device("board", board.client_key, board.known_hosts)


def test_the_place_is_held_for_the_deploy_and_given_back(
    lab: Lab, device: Device, small: Tiny, board: server.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    small.deploy(device, listeners=[lambda event: seen.append(lab.holder("board")) if event.step == "run" else None])
    assert ssh_address(device).port == board.port, "it can be looked up without being acquired"
    assert seen
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0", "else a process that is forked now may die before it begins"
    assert all(name and "/" in name for name in seen)
    assert lab.holder("board") == ""
    assert tiny.settled(board.home, board.home / ".slipway") == []
    monkeypatch.setenv(COORDINATOR, lab.address)
    small.deploy(device.model_copy(update={"place": "by-another-name", "coordinator": ""}))
    assert lab.holder("board") == ""


def test_a_place_of_somebody_else(lab: Lab, device: Device, small: Tiny) -> None:
    lab.client("-p", "board", "acquire", user="somebody")
    for wait in (0, 1):
        with pytest.raises(DeviceBusyError, match="desk is in use by elsewhere/somebody: the place board is acquired"):
            small.deploy(device, wait=wait)
        assert lab.holder("board") == "elsewhere/somebody"
        assert lab.client("reservations") == ""
    lab.client("-p", "board", "release", user="somebody")
    small.deploy(device)


def test_a_place_is_waited_for(lab: Lab, device: Device, small: Tiny) -> None:
    """In the coordinator's own queue, where labgrid's users are, too."""
    said: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "note" and "waits" in event.text:
            said.append(event.text)
            lab.client("-p", "board", "release", user="somebody")

    lab.client("-p", "board", "acquire", user="somebody")
    small.deploy(device, wait=60, timeout=20, listeners=[listen])
    assert re.fullmatch(
        r"desk waits up to 60 s for the place board \(elsewhere/somebody\) \(reservation \w{10}\)", said[0]
    )
    assert (lab.holder("board"), lab.client("reservations")) == ("", "")
    # Somebody's reservation keeps the place from others, and gives way to its own user.
    token = lab.client("reserve", "name=board", "--shell").strip().partition("=")[2]
    small.deploy(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLACE, f"+{token}")
        small.deploy(device.model_copy(update={"place": ""}))
    lab.client("cancel-reservation", token)
    token = lab.client("reserve", "name=board", "--shell", user="somebody").strip().partition("=")[2]
    with pytest.raises(DeviceBusyError, match="desk is in use: the place board is reserved"):
        small.deploy(device, wait=0)
    lab.client("cancel-reservation", token)


def test_ctrl_c_ends_the_wait(lab: Lab, device: Device, small: Tiny) -> None:
    lab.client("-p", "board", "acquire", user="somebody")
    running = Deploying(device, small.bundle, small.model)
    running.wait_for(lambda: "name=board" in lab.client("reservations"))
    running.interrupt()
    assert running.end()[0] == 130
    assert lab.client("reservations") == ""
    assert lab.holder("board") == "elsewhere/somebody"
    lab.client("-p", "board", "release", user="somebody")


def test_a_place_by_its_tags(lab: Lab, device: Device, small: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.client("-p", "board", "set-tags", "kind=desk", "ram=8g")
    lab.client("-p", "spare", "set-tags", "kind=spare", "ram=8g")
    held: list[str] = []
    tagged = device.model_copy(update={"place": "", "place_tags": ("kind=desk", "ram=8g")})
    small.deploy(tagged, listeners=[lambda event: held.append(lab.holder("board")) if event.step == "run" else None])
    assert all(held)
    assert len(held) >= 1
    # Of two places with the tag, the free one is taken.
    lab.client("-p", "spare", "acquire", user="somebody")
    small.deploy(device.model_copy(update={"place": "", "place_tags": ("ram=8g",)}), wait=0)
    lab.client("-p", "spare", "release", user="somebody")
    with pytest.raises(ConfigError, match="has no place with the tags kind=desk, ram=4g") as caught:
        small.deploy(device.model_copy(update={"place": "", "place_tags": ("kind=desk", "ram=4g")}))
    assert "board, spare" in caught.value.cause
    monkeypatch.setenv(PLACE, "board")
    small.deploy(device.model_copy(update={"place": ""}))
    monkeypatch.delenv(PLACE)
    with pytest.raises(ConfigError, match="desk does not name a labgrid place"):
        small.deploy(device.model_copy(update={"place": ""}))


def test_deploys_of_one_user_take_turns(lab: Lab, device: Device, small: Tiny, board: server.Device) -> None:
    other = Deploying(device, small.bundle, small.model, 5000)
    other.wait_for(lambda: ["sleep", "4242"] in marked(str(board.home)).values())
    with pytest.raises(DeviceBusyError, match="desk is in use by"):
        small.deploy(device, wait=0)
    said: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "note" and "waits" in event.text:
            said.append(event.text)
            other.interrupt()

    small.deploy(device, wait=120, listeners=[listen])
    assert len(said) == 1
    assert other.end()[0] == 130
    assert (lab.holder("board"), lab.client("reservations")) == ("", "")
    # What the user acquired is used, and stays the user's.
    lab.client("-p", "board", "acquire")
    small.deploy(device, wait=0)
    assert lab.holder("board") != ""
    lab.client("-p", "board", "release")


def test_no_such_place_and_no_coordinator(lab: Lab, device: Device, small: Tiny) -> None:
    with pytest.raises(ConfigError, match="has no place 'bord'") as caught:
        small.deploy(device.model_copy(update={"place": "bord"}))
    assert "board, spare" in caught.value.cause
    with socket.socket() as taken:  # it does not listen, and nobody else can
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=f"coordinator {nobody} cannot be reached"):
            small.deploy(device.model_copy(update={"coordinator": nobody}))
    lab.client("-p", "board", "add-match", "rack/spare/NetworkService")
    with pytest.raises(ConfigError, match="has several NetworkService"):
        small.deploy(device)
    lab.client("-p", "board", "del-match", "rack/spare/NetworkService")
    assert lab.holder("board") == ""


def test_a_virtual_pi_in_a_lab(lab: Lab, pi: virtual.Endpoint, arm: Bundle, program: Path) -> None:
    lab.export("tower", {"pi": service(pi.port, pi.user)})
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

    settings = Settings(num_executions=1, warmup=0, timeout=300)
    result = deploy(device, arm, program, settings, listeners=[listen])
    assert (result.device, result.facts.machine, result.verdict) == ("rack-pi", "aarch64", "agrees")
    assert held == [f"{socket.gethostname()}/{getpass.getuser()}"]
    assert lab.holder("pi") == ""


def test_coordinator_and_device_through_an_ssh_host(tmp_path: Path, lab: Lab, board: server.Device) -> None:
    """LG_PROXY, as labgrid's own client has it: by the user's ssh, and by Slipway's own for the device."""
    with server.serve(tmp_path / "gate") as gate:
        config = tmp_path / ".ssh/config"
        config.parent.mkdir()
        config.write_text(f"{gate.entry('gate')} UserKnownHostsFile {gate.known_hosts}\n")
        # OpenSSH reads the file below the home that the system has for the user, whatever HOME says.
        ssh = shutil.which("ssh")
        assert ssh
        executable(tmp_path / "bin/ssh", f'#!/bin/sh\nexec {ssh} -F {config} "$@"\n')
        inventory = tmp_path / "devices.toml"
        inventory.write_text(
            f'[desk]\ntransport = "ssh"\nsource = "labgrid"\nkey = "{board.client_key}"\n'
            f'known_hosts = "{board.known_hosts}"\n'
        )
        environment = {
            **os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "LG_COORDINATOR": lab.address, "LG_PLACE": "board", "SLIPWAY_CACHE": str(cache_dir()),
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
        assert lab.holder("board") == ""
        done = run("nowhere.invalid")
        assert done.returncode == UnreachableError.exit_code
        assert f"The labgrid coordinator {lab.address} cannot be reached through nowhere.invalid." in done.stderr


def test_an_exporter_may_be_the_only_way(
    tmp_path: Path, lab: Lab, board: server.Device, small: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is exported with --isolated is reached through the exporter's own sshd."""
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    with server.serve(tmp_path / "gate") as gate:
        lab.export("rack2", {"far": service(board.port, server.USER)}, "--isolated")
        text = f"{gate.entry(socket.getfqdn())} UserKnownHostsFile {gate.known_hosts}\n"
        (tmp_path / ".ssh/config").write_text(text)
        small.deploy(Device(
            name="desk", transport="ssh", source="labgrid", coordinator=lab.address, place="far",
            target=host_target().name, key=Path(board.client_key), known_hosts=Path(board.known_hosts),
        ))  # fmt: skip
        assert gate.forwarded == [board.port]
