"""The virtual Raspberry Pi, for real: it boots, lets its key in and nobody else, and leaves nothing behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import UnreachableError
from core.paths import ROOT
from deploy.virtual import image as virtual_image
from deploy.virtual import machines as virtual
from deploy.virtual.machines import Endpoint
from deploy.virtual.spec import get_spec
from deploy.virtual.supervisor import Folder, read_state
from tests.support.processes import alive, gone, marked, ran, wait_for

pytestmark = pytest.mark.virtual

ENSURE = "from deploy.virtual import machines; end = machines.ensure('pi'); print(end.port)"


def run(end: Endpoint, command: str, user: str = "") -> tuple[int, str]:
    """By OpenSSH's client, which has the machine's key on record: the exit status, and what the command says."""
    settings = ("StrictHostKeyChecking=yes", "BatchMode=yes", "IdentitiesOnly=yes", "LogLevel=ERROR")
    options = ["-F", "none", "-i", str(end.key), "-p", str(end.port), *(f"-o{setting}" for setting in settings)]
    options.append(f"-oUserKnownHostsFile={end.known_hosts}")
    done = ran(["ssh", *options, f"{user or end.user}@{end.host}", command], timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """The folder of a machine of this file's own, which the tests start and end in turn; nothing of it may be left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_DEVICES", str(tmp_path_factory.mktemp("devices")))
        patch.delenv(virtual.IDLE_VARIABLE, raising=False)
        folder = Folder.of("pi")
        yield folder
        virtual.stop("pi")
        assert marked(str(folder.path)) == {}


@pytest.fixture
def pi(own: Folder) -> Endpoint:
    return virtual.ensure("pi")


def test_ctrl_c_while_it_boots_leaves_nothing(own: Folder) -> None:
    with subprocess.Popen([sys.executable, "-c", ENSURE], cwd=ROOT, stderr=subprocess.PIPE) as child:
        wait_for(lambda: read_state(own), 120)
        child.send_signal(signal.SIGINT)
        assert child.wait(90) != 0
    assert marked(str(own.path)) == {}
    assert not own.state.exists()


def test_a_machine_that_does_not_answer_is_ended_and_explained(own: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = get_spec("pi").model_copy(update={"append": "console=ttyAMA0 panic=-1 rdinit=/nothing", "boot_seconds": 60})
    monkeypatch.setattr(virtual, "get_spec", lambda _name: slow)
    with pytest.raises(UnreachableError, match="did not come up: it ended") as caught:
        virtual.ensure("pi")
    assert "panic" in caught.value.cause
    assert marked(str(own.path)) == {}
    hasty = get_spec("pi").model_copy(update={"boot_seconds": 1.5})
    monkeypatch.setattr(virtual, "get_spec", lambda _name: hasty)
    with pytest.raises(UnreachableError, match="did not answer within"):
        virtual.ensure("pi")
    assert marked(str(own.path)) == {}


def test_three_at_once_start_one_machine(own: Folder) -> None:
    argv = [sys.executable, "-c", ENSURE]
    children = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    ports = {child.communicate(timeout=280)[0] for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    assert ports == {f"{virtual.status('pi').port}\n".encode()}
    assert sum("-kernel" in argv for argv in marked(str(own.path)).values()) == 1


def test_it_is_a_pi_as_far_as_programs_see(pi: Endpoint) -> None:
    assert run(pi, "uname -m; hostname; id -un; pwd; nproc") == (0, "aarch64\npi\npi\n/home/pi\n2\n")
    assert "CPU part\t: 0xd08" in run(pi, "cat /proc/cpuinfo")[1]  # Cortex-A72
    assert run(pi, "getconf GNU_LIBC_VERSION")[1] == "glibc 2.36\n"
    assert abs(int(run(pi, "date +%s")[1]) - time.time()) < 300


def test_it_listens_on_loopback_alone(pi: Endpoint) -> None:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{pi.port:04X}")]
    assert listening == [f"0100007F:{pi.port:04X}"]


def test_it_reaches_nothing(pi: Endpoint) -> None:
    """Not even this machine, which QEMU's user network would otherwise offer at 10.0.2.2."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert run(pi, f"nc -w 3 10.0.2.2 {server.getsockname()[1]} </dev/null")[0] not in (0, 255), "255 is ssh's own"
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_power_off_ends_it(own: Folder, pi: Endpoint) -> None:
    run(pi, "poweroff", user="root")
    assert gone(str(own.path), 30)
    assert str(virtual.status("pi")) == "down"


def test_it_comes_back_with_the_same_keys_and_disuse_ends_everything(
    own: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = own.known_hosts.read_text().split()[2] if own.known_hosts.exists() else ""
    monkeypatch.setenv(virtual.IDLE_VARIABLE, "4")
    end = virtual.ensure("pi")
    host, _, public = own.known_hosts.read_text().split()[:3]
    assert (host, public) == (f"[127.0.0.1]:{end.port}", keys or public)
    assert run(end, "sleep 6")[0] == 0, "longer than the limit, and in use: it stays"
    assert str(virtual.status("pi")) == "up"
    state = read_state(own)
    assert state is not None
    assert gone(str(own.path))
    assert str(virtual.status("pi")) == "down"
    assert not alive(state.pid)


def test_the_image_is_cached_and_always_the_same(tmp_path: Path) -> None:
    spec = get_spec("pi")
    first = virtual_image.image(spec)
    assert virtual_image.image(spec) == first
    before = first.initrd.read_bytes()
    (tmp_path / "again").mkdir()
    virtual_image._build(spec, *virtual_image.trees(spec), tmp_path / "again")
    assert (tmp_path / "again/initrd.cpio").read_bytes() == before
