"""A Mac over SSH, as far as it can be had here: a real SSH server, bash as sh, and tools that act like BSD's.

Programs for macOS cannot run here. Slipway's own scripts do, and a "runner" that is a script.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files import sha256_file
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.store.store import Blob, Store
from deploy.transport.deadline import Deadline
from tests.faults import server, tiny
from tests.support.deploying import Deploying
from tests.support.processes import gone, marked
from tests.support.userlands import bsd

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def mac(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Device]:
    folder = tmp_path_factory.mktemp("mac")
    tools = bsd(folder / "bin")
    with server.serve(folder / "mac") as running:
        running.shell = lambda command: [str(tools / "sh"), "-c", command]
        running.environment = {"PATH": str(tools), "HOME": str(running.home)}
        (running.home / "precious").write_text("precious")
        yield running


def table(mac: server.Device, **words: object) -> Device:
    return Device.model_validate({
        "name": "studio", "transport": "ssh", "host": "127.0.0.1", "port": mac.port, "user": server.USER,
        "target": "macos-arm64", "key": mac.client_key, "known_hosts": mac.known_hosts, **words,
    })  # fmt: skip


def test_a_whole_deploy(mac: server.Device, tmp_path: Path, dist: Path) -> None:
    small, device = tiny.make(tmp_path / "tiny", mac=True), table(mac)
    first = small.deploy(device)
    assert (first.facts.system, first.facts.machine, first.facts.board) == ("Darwin", "arm64", "Mac14,2")
    assert first.upload.files == 4
    assert first.conditions.after.load1 == 1.52
    assert small.deploy(device).upload.files == 0, "its files look as they did"
    assert tiny.settled(mac.home, mac.home / ".slipway") == []
    other = tiny.make(tmp_path / "other", seed=2, mac=True)
    damaged = next(file for file in (mac.home / ".slipway/store").iterdir() if file.stat().st_size == tiny.PAYLOAD)
    damaged.chmod(0o644)
    damaged.write_bytes(b"x" * tiny.PAYLOAD)
    damaged.chmod(0o444)
    again = small.deploy(device)
    assert again.verified is not None
    assert again.verified.replaced == ("payload",)
    assert other.deploy(device).upload.files == 3, "the runner is the same"
    assert (dist / "results").is_dir()


def test_ctrl_c_ends_its_whole_group(mac: server.Device, tmp_path: Path) -> None:
    small = tiny.make(tmp_path / "tiny", mac=True)
    running = Deploying(table(mac), small.bundle, small.model, 5000)
    running.wait_for(lambda: ["sleep", "4242"] in [argv[-2:] for argv in marked(str(mac.home)).values()])
    running.interrupt()
    assert running.end()[0] == 130
    assert gone(str(mac.home))
    assert tiny.settled(mac.home, mac.home / ".slipway") == []


def test_a_session_that_died_holds_no_lock(mac: server.Device, tmp_path: Path) -> None:
    """Without /proc a process is known by ps: its start, and whether it lives."""
    file = tmp_path / "file"
    file.write_bytes(b"again and again")
    root = str(mac.home / "lock-root")
    with (
        open_device(table(mac)) as one,
        open_device(table(mac)) as two,
        Store(one, root) as store,
        Store(two, root) as other,
    ):
        assert store.open([], Deadline.after(30), make=True) is not None
        assert other.ask([], None, Deadline.after(30))[1] == "busy"
        mac.cut()
        mac.connections.clear()
    with open_device(table(mac)) as transport, Store(transport, root) as store:
        assert store.open([], Deadline.after(30)) is not None
        store.upload([Blob(file, sha256_file(file), file.stat().st_size)], lambda _: None, Deadline.after(30))
