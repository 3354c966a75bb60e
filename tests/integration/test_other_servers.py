"""Other servers and tools behind SSH: a Mac, as far as it can be had here, and the real dropbear with BusyBox alone.

The Mac: a real SSH server, bash as sh, tools that act like BSD's, and a "runner" that is a script.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from core.files import sha256_file, write_atomic
from core.paths import cache_dir
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.store.store import Blob, Store
from deploy.transport.deadline import Deadline
from tests.faults import server, tiny
from tests.support.deploying import Deploying
from tests.support.processes import executable, gone, marked, ran, well
from tests.support.userlands import bsd, userland
from toolchains.debian import packages as debian
from toolchains.debian.tree import own_loader_argv
from toolchains.targets import host_target


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


def test_a_whole_deploy_to_a_mac(mac: server.Device, tmp_path: Path, dist: Path) -> None:
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


@pytest.fixture(scope="module")
def dropbear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """It listens on this machine's own address, lets one key in, and gives every command to BusyBox."""
    folder = tmp_path_factory.mktemp("dropbear")
    tree = debian.tree("trixie", "amd64", ["dropbear-bin"], closure=True, name="test-dropbear")
    busybox = userland("busybox", folder / "bin")
    keygen = own_loader_argv(tree, "usr/bin/dropbearkey")
    well(ran([*keygen, "-t", "ed25519", "-f", folder / "host"]))
    shown = well(ran([*keygen, "-y", "-f", folder / "host"])).stdout
    host_key = next(line for line in shown.splitlines() if line.startswith("ssh-ed25519 "))
    well(ran(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"]))
    keys = Path(tempfile.mkdtemp(prefix="dropbear-test-", dir=_private()))
    (keys / "authorized_keys").write_text((folder / "id.pub").read_text())
    (keys / "authorized_keys").chmod(0o600)
    (folder / "home").mkdir()
    text = f'PATH={busybox} HOME={folder}/home exec {busybox}/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    script = executable(folder / "busybox-only", f"#!/bin/sh\ncd {folder}/home\n{text}")
    # For each connection anew, as inetd does it: otherwise it would start itself again without its own loader.
    words = [*own_loader_argv(tree, "usr/sbin/dropbear"), "-i", "-E", "-s", "-r", str(folder / "host")]
    words += ["-D", str(keys), "-c", str(script)]
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key.split()[:2])}\n")
    children: list[subprocess.Popen[bytes]] = []
    with (folder / "log").open("w") as log:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    end = connection.fileno()
                    children.append(subprocess.Popen(words, stdin=end, stdout=end, stderr=log))

        server = threading.Thread(target=serve)
        server.start()
        yield Device(
            name="router", transport="ssh", target=host_target().name, host="127.0.0.1", port=port,
            user=getpass.getuser(), key=folder / "id", known_hosts=folder / "known_hosts",
        )  # fmt: skip
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join()
        for child in children:
            child.terminate()
            child.wait(10)
    shutil.rmtree(keys)


def _private() -> Path:
    """A folder that nobody else may write to, nor to any above it: dropbear takes keys from no other."""
    for folder in (cache_dir("tests"), Path(platformdirs.user_cache_dir("slipway-tests", ensure_exists=True))):
        if not any(above.stat().st_mode & 0o022 for above in (folder, *folder.parents)):
            return folder
    raise AssertionError("the home folder is open to others")


def test_a_whole_deploy_to_a_router(dropbear: Device, tmp_path: Path, dist: Path) -> None:
    small = tiny.make(tmp_path / "tiny", elements=tiny.LARGE)  # its output comes as a file of its own
    device = dropbear.model_copy(update={"root": str(tmp_path / "home/.slipway")})
    write_atomic(tmp_path / "home/precious", "precious")
    assert small.deploy(device).upload.files == 4
    assert small.deploy(device).upload.files == 0
    assert gone(str(tmp_path / "home"))
    assert tiny.settled(tmp_path / "home", tmp_path / "home/.slipway") == []
    assert (dist / "results").is_dir()


def test_many_names_go_in_commands_that_are_short_enough(dropbear: Device, tmp_path: Path) -> None:
    """Two hundred names: in one command dropbear would hang up."""
    file = tmp_path / "file"
    file.write_bytes(b"again and again")
    blob = Blob(file, sha256_file(file), file.stat().st_size)
    files = {f"lib/a folder/a file of quite some name {index}": blob for index in range(200)}
    names = [f"store/{blob.sha256}", *(f"bundles/x/{path}" for path in files)]
    with open_device(dropbear) as transport, Store(transport, str(tmp_path / "root")) as store:
        assert store.open(names, Deadline.after(60), make=True) is not None
        store.upload([blob], lambda _: None, Deadline.after(60))
        store.arrange("bundles/x", files, Deadline.after(60))
        assert len(store.survey(names, Deadline.after(60)).looks) == 201
    assert len(list((tmp_path / "root/bundles/x/lib/a folder").iterdir())) == 200
    subprocess.run(["sha256sum", "--status", "-c", "SHA256SUMS"], cwd=tmp_path / "root/bundles/x", check=True)
