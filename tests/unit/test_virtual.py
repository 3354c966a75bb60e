"""Virtual devices without QEMU: state on disk, whom `stop` ends, the supervisor; and what a machine is given."""

from __future__ import annotations

import contextlib
import lzma
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.paths import ROOT
from deploy.virtual import cpio, image
from deploy.virtual import machines as virtual
from deploy.virtual.spec import get_spec
from deploy.virtual.supervisor import Folder, Launch, Process, State, read_state
from tests.support.processes import wait_for
from toolchains.debian.client import ArchiveError

# Stands for QEMU: listens where it is told, like a forwarded port, and says which process it is.
MACHINE = """
import os, socket, sys, time
open(sys.argv[2], "w").write(str(os.getpid()))
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
kept = []
while True:
    kept.append(server.accept())
"""

# The same, but the folder of its device is removed some time before it listens.
HOMELESS = "import os, sys\nhome = os.path.dirname(sys.argv[2])\n" + MACHINE.replace(
    "server =", "os.rename(home, home + '-removed')\ntime.sleep(0.3)\nserver ="
)

UNREADY = """
import os, pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[2]).write_text("ended by request")
    sys.exit()
signal.signal(signal.SIGTERM, end)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""
"""In the place of QEMU: asks its supervisor to end before it has its port, and notes how it ended itself."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The state folder of ``pi``, empty."""
    monkeypatch.setenv("SLIPWAY_DEVICES", str(tmp_path / "devices"))
    return Folder.of("pi")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def test_a_process_is_known_by_more_than_its_pid(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process.alive
    assert not replace(process, start_time=process.start_time - 1).alive
    assert not replace(process, boot="another").alive
    assert not Process(0, 0, process.boot).alive
    with subprocess.Popen(["true"]) as child:
        process = Process.of(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the table
        assert Path(f"/proc/{child.pid}").exists()
        assert not process.alive
        assert not process.send(signal.SIGTERM)


def state_of(process: Process) -> State:
    return State(process, process, 1, time.time(), 900.0, ready=True)


@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot": "another boot"}], ids=["reused pid", "rebooted"])
def test_stop_never_ends_a_foreign_process(
    folder: Folder, sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    foreign = replace(Process.of(sleeper.pid), **change)  # type: ignore[arg-type]
    state_of(foreign).write(folder.state)
    assert not virtual.status("pi").running
    assert virtual.stop("pi") is False
    time.sleep(0.1)
    assert sleeper.poll() is None
    assert not folder.state.exists()


def test_stop_all_ends_what_is_ours_and_tells_which(folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
    assert virtual.stop_all() == []
    process = Process.of(sleeper.pid)
    state_of(process).write(Folder.of("formerly").state)
    state_of(process).write(folder.state)
    assert str(virtual.status("pi")) == "up"
    state_of(replace(process, start_time=1)).write(folder.state)
    assert str(virtual.status("pi")) == "down"
    assert virtual.stop_all() == ["formerly"]
    assert not process.alive
    assert virtual.stop_all() == []
    for damaged in ("", "[]", "{}", '{"supervisor": {"pid": 1}}', '{"supervisor": 1, "qemu": 2}'):
        folder.state.write_text(damaged)
        assert read_state(folder) is None


@contextlib.contextmanager
def supervised(
    folder: Folder, program: str, idle_seconds: float, open_files: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor over ``program`` in the place of QEMU, which inherits ``open_files``."""
    argv = (sys.executable, "-c", program, "{port}", str(folder.path / "machine.pid"))
    Launch(argv, idle_seconds).write(folder)
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
def up(
    folder: Folder, program: str, idle_seconds: float, **more: Any
) -> Iterator[tuple[subprocess.Popen[bytes], State]]:
    """The same, once its machine is up."""
    with supervised(folder, program, idle_seconds, **more) as child:
        state = read_state(folder)
        assert state is not None, folder.log.read_text()
        wait_for((folder.path / "machine.pid").exists)
        yield child, state


def connected(port: int) -> socket.socket:
    """A connection, as soon as it listens."""
    found: list[socket.socket] = []

    def tried() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            found.append(socket.create_connection(("127.0.0.1", port)))
        return bool(found)

    wait_for(tried)
    return found[0]


def let_be_idle(folder: Folder, seconds: float) -> None:
    """As if it had not been used for so long."""
    then = time.time() - seconds
    os.utime(folder.last_used, (then, then))


def test_an_open_connection_and_use_keep_the_machine(folder: Folder) -> None:
    with up(folder, MACHINE, 600) as (child, state):
        with connected(state.port):
            let_be_idle(folder, 601)
            wait_for(lambda: folder.idle_seconds() < 300 or child.poll() is not None)
            assert child.poll() is None
            assert state.running
        let_be_idle(folder, 599)
        folder.touch()
        time.sleep(2.5)
        assert child.poll() is None
        while child.poll() is None:  # once more, as long as it still saw the connection
            let_be_idle(folder, 601)
            time.sleep(0.1)
        assert child.returncode == 0
        assert not state.qemu.alive


def test_the_machine_dies_with_its_supervisor(folder: Folder) -> None:
    with up(folder, MACHINE, 600) as (child, state):
        child.kill()
        child.wait()
        assert state.qemu.wait(60)
        assert not virtual.status("pi").running
        assert virtual.stop("pi") is False


def test_a_folder_removed_during_the_start_ends_the_machine(folder: Folder) -> None:
    with supervised(folder, HOMELESS, 600) as child:
        assert child.wait(60) == 0
    removed = Folder(folder.path.with_name("pi-removed"))
    assert "was removed: ending the machine" in removed.log.read_text()
    machine = int((removed.path / "machine.pid").read_text())
    assert not Path(f"/proc/{machine}").exists()


def test_a_machine_that_has_no_port_yet_is_asked_to_end(folder: Folder) -> None:
    with supervised(folder, UNREADY, 600) as child:
        assert child.wait(60) == 0
    assert "asked to end the machine" in folder.log.read_text()
    assert (folder.path / "machine.pid").read_text() == "ended by request"


def test_a_lock_of_the_caller_is_not_kept_for_as_long_as_the_machine_runs(folder: Folder) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as reader, supervised(folder, MACHINE, 600, (theirs,)) as child:
        os.close(theirs)
        assert select.select([reader], [], [], 60)[0], "somebody holds the other end"
        assert reader.read() == b""
        assert child.poll() is None


@pytest.mark.parametrize(("half", "suites"), [(True, ["trixie", "sid"]), (False, ["trixie"])])
def test_a_half_updated_suite_is_replaced(half: bool, suites: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tree(suite: str, *_: object, **__: object) -> Path:
        asked.append(suite)
        if suite == "trixie":
            raise ArchiveError("Reading the list failed.", "", "", half_updated=half)
        return Path(suite)

    monkeypatch.setattr("toolchains.debian.packages.tree", tree)
    monkeypatch.setattr(image, "_kernel_packages", lambda spec: [])
    spec = get_spec("phone-armv7")
    if len(suites) == 2:
        assert image.trees(spec) == (Path("bookworm"), Path("sid"))
    else:
        with pytest.raises(ArchiveError):
            image.trees(spec)
    assert asked == ["bookworm", *suites]


def read(raw: bytes) -> dict[str, cpio.Entry]:
    found: dict[str, cpio.Entry] = {}
    at = 0
    while True:
        fields = [int(raw[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = raw[at + 110 : at + 109 + fields[11]].decode()
        if name == "TRAILER!!!":
            return found
        data = at + 110 + fields[11] + -(110 + fields[11]) % 4
        found[name] = cpio.Entry(name, fields[1], raw[data : data + fields[6]], (fields[9], fields[10]))
        at = data + fields[6] + -fields[6] % 4


def test_entries_of_every_kind_come_in_one_order() -> None:
    entries = [
        cpio.folder("root", 0o700), cpio.file("usr/bin/tool", bytes(range(256)) * 33, 0o755), cpio.file("empty", b""),
        cpio.link("bin", "usr/bin"), cpio.character_device("dev/console", 5, 1),
    ]  # fmt: skip
    found = read(cpio.write(entries))
    assert [found[entry.path] for entry in entries] == entries
    assert found["usr/bin"] == cpio.folder("usr/bin")
    names = list(read(cpio.write([cpio.file("a/b/c", b""), cpio.file("a-b", b""), cpio.file("a/z", b"")])))
    assert names == ["a", "a/b", "a/b/c", "a/z", "a-b"]
    assert cpio.write(entries) == cpio.write(entries[::-1])


@pytest.mark.parametrize("path", ["/etc", "a//b", "../x", "a/./b", ""])
def test_paths_that_leave_the_root_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="relative"):
        cpio.write([cpio.file(path, b"")])


def module(info: bytes) -> bytes:
    """The least ELF file with a ``.modinfo`` section (System V ABI: file header, section headers)."""
    names = b"\0.modinfo\0.shstrtab\0"
    at = 64
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, at, len(info), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, at + len(info), len(names), 0, 0, 1, 0),
    ]
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 1, 183, 1, 0, 0, at + len(info) + len(names), 0, 64, 0, 0, 64, 3, 2)
    return head + info + names + b"".join(sections)


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A kernel's modules: net needs core and bus, bus needs core; ring is built in; soft wants extra first."""
    files = {
        "net/virt-net.ko": b"name=virt_net\0depends=core,bus,ring\0",
        "bus.ko": b"depends=core\0license=GPL\0",
        "core.ko": b"depends=\0",
        "soft.ko": b"softdep=pre: extra absent post: later\0depends=\0",
        "extra.ko": b"",
        "loop-a.ko": b"depends=loop-b\0",
        "loop-b.ko": b"depends=loop-a\0",
        "broken.ko": b"depends=missing\0",
    }
    for name, info in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(module(info))
    (tmp_path / "packed.ko.xz").write_bytes(lzma.compress(module(b"depends=core\0")))
    (tmp_path / "modules.builtin").write_text("kernel/drivers/ring.ko\n")
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (["virt_net"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["virt-net", "core"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["bus", "virt_net"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["ring"], []),
        (["soft"], ["extra.ko", "soft.ko"]),
        (["packed"], ["core.ko", "packed.ko.xz"]),
        (["loop_a"], ["loop-b.ko", "loop-a.ko"]),
    ],
)
def test_modules_come_after_what_they_depend_on(modules: Path, wanted: list[str], order: list[str]) -> None:
    assert [file.name for file in image.load_order(wanted, *image.find(modules))] == order


def test_modinfo_keeps_all_values_and_a_module_that_is_missing_is_named(modules: Path) -> None:
    with pytest.raises(ConfigError, match="no module missing") as caught:
        image.load_order(["broken"], *image.find(modules))
    assert "broken" in caught.value.cause
    assert image.modinfo(module(b"alias=a\0alias=b\0depends=\0")) == {"alias": ["a", "b"], "depends": [""]}
