"""Windows over SSH: whole deploys by batch files; and the runner by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeadlineError, NotSupportedError, RunError, TransferError, UnreachableError
from core.formats.bundle import RUNNER, Bundle
from core.formats.program import load_program
from core.paths import ROOT
from deploy.devices.facts import choose_target
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.run.events import Event
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.transport.deadline import Deadline
from deploy.transport.ssh.windows import WindowsTransport
from deploy.upkeep.upkeep import verify
from models.export import export
from tests.faults.server import USER, Sftp, serve
from tests.faults.server import Device as Server
from tests.support.processes import ran, well
from toolchains.bundle.builder import build
from toolchains.bundle.offers import operators_in
from toolchains.emulation import wine
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]

# What is real of the device: the SSH protocol, cmd as the login's shell, Windows' rules for files that are open, and
# the server process that all of its programs share: asyncssh stands before Wine's own cmd and Wine's disk. What is
# not: sshd.exe, NTFS, and PowerShell.
VERSION = "OpenSSH_for_Windows_9.5"
_HOME = "drive_c/users/wine"
_ENTER = ("nsenter", "--user", "--preserve-credentials", "--mount", "--pid", "--target")


class _Files(Sftp):
    """Paths below the login's folder."""

    def map_path(self, path: bytes) -> bytes:
        """The file here."""
        return os.fsencode(self._device.home) + b"/" + path


@contextlib.contextmanager
def windows(folder: Path) -> Iterator[Server]:
    """Run it; its login's folder is the device's ``home``."""
    target = get_target("windows-x86_64")
    prefix, work = folder / "prefix", folder / "work"
    shutil.copytree(wine.prefix(target), prefix, symlinks=True)
    work.mkdir()
    own, environment = wine._wine(target), wine.environment(target)
    root, script = os.fspath(wine._tree(own)), f'{wine._MOUNT}exec chroot "$root" "$1" --foreground --persistent\n'
    start = wine._namespace(script, root, prefix, work, environment["WINESERVER"])
    enter = ["chroot", root, f"{wine._PROGRAMS}/{own.loader}"]
    server = subprocess.Popen(start, env=environment, stdin=subprocess.DEVNULL)
    try:
        inside = _child(server.pid)

        inner = [*_ENTER, inside, *enter, "cmd.exe"]
        # Windows' services begin with its first program, inherit its streams, and end with the last one.
        nowhere = subprocess.DEVNULL
        first = subprocess.Popen(inner, env=environment, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)
        subprocess.run(
            [*inner, "/c", "exit"], env=environment, check=True, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )

        def shell(command: str) -> list[str]:
            # `cd` first, since a program that is started from outside of its system begins in no folder of it.
            return [*inner, "/c", f"cd /d C:\\users\\wine & {command}"]

        with serve(folder, version=VERSION, files=_Files) as device:
            device.home, device.shell, device.environment = prefix / _HOME, shell, environment
            yield device
        first.communicate()  # its input ends
    finally:
        server.kill()
        server.wait()


def _child(parent: int) -> str:
    """The process that ``unshare`` forked, once it is there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if found and "wineserver" in str(Path(f"/proc/{found[0]}/exe").readlink()):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("Wine's server did not start")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return build("windows-x86_64", "lean")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with windows(tmp_path_factory.mktemp("windows")) as found:
        yield found


@pytest.fixture
def device(server: Server) -> Device:
    return Device(
        name="pc", transport="ssh", host="127.0.0.1", port=server.port, user=USER, key=server.client_key,
        known_hosts=server.known_hosts, target="windows-x86_64", timeout=300.0,
    )  # fmt: skip


ONE = Settings(num_executions=1, warmup=0, retries=0)
LONG = Settings(num_executions=1_000_000, warmup=1_000_000, retries=0)
"""More than half a minute with `slow`."""


@pytest.fixture(scope="module")
def slow() -> Path:
    """An execution takes some 20 µs."""
    return export("conv", "fp32")


def left(server: Server) -> list[str]:
    """What is in Slipway's folder there, but its batch file."""
    return [file.name for file in (server.home / ".slipway").iterdir() if file.suffix != ".cmd"]


def test_whole_deploys(device: Device, server: Server, bundle: Bundle, program: Path, dist: Path) -> None:
    for _ in range(2):
        result = deploy(device, bundle, program, Settings(num_executions=2, warmup=0), listeners=[])
        result.check()
        assert (result.facts.system, result.facts.machine) == ("Windows", "x86_64")
        assert choose_target(result.facts) == "windows-x86_64"
        assert set(bundle.manifest.needs.libraries) <= set(result.facts.libraries)
        assert result.upload.bytes > (program / "model.pte").stat().st_size
        assert left(server) == []


def test_an_error_of_the_runner_comes_back_as_it_says_it(
    device: Device, server: Server, bundle: Bundle, program: Path, dist: Path
) -> None:
    with open_device(device) as transport:
        assert isinstance(transport, WindowsTransport)
        with transport.opened((), Deadline.after(60)), pytest.raises(NotSupportedError, match="quote"):
            transport.call(["a.exe", 'a "b"'], Deadline.after(60), "running")
    with pytest.raises(RunError, match="does not know one of its arguments") as caught:
        deploy(device, bundle, program, ONE.model_copy(update={"num_executions": 1_000_000_000}), listeners=[])
    assert "a whole number from 1 to 1000000" in caught.value.cause
    assert left(server) == []


def test_what_arrives_damaged_is_not_run(
    device: Device, server: Server, bundle: Bundle, program: Path, dist: Path
) -> None:
    server.faults.wrote, server.faults.corrupt_at = 0, 200_000
    try:
        with pytest.raises(TransferError, match="arrived damaged"):
            deploy(device, bundle, program, ONE, listeners=[])
    finally:
        server.faults.corrupt_at = -1
    assert left(server) == []


def test_a_run_ends_with_its_time(device: Device, server: Server, bundle: Bundle, slow: Path, dist: Path) -> None:
    with pytest.raises(DeadlineError):
        deploy(device, bundle, slow, LONG.model_copy(update={"timeout": 20.0}), listeners=[])
    assert left(server) == []  # its program is no longer there: Windows would not remove its file


def test_what_a_broken_connection_leaves_the_next_deploy_removes(
    device: Device, server: Server, bundle: Bundle, program: Path, slow: Path, dist: Path
) -> None:
    def cut(event: Event) -> None:
        if (event.step, event.kind) == ("run", "start"):
            threading.Timer(3, server.cut).start()

    with pytest.raises(UnreachableError):
        deploy(device, bundle, slow, LONG, listeners=[cut])
    assert left(server)
    deploy(device, bundle, program, ONE, listeners=[]).check()
    assert left(server) == []


def test_what_needs_a_store_is_refused(device: Device, bundle: Bundle) -> None:
    with pytest.raises(NotSupportedError, match="no POSIX shell"):
        execute(device, bundle.path / f"{RUNNER}.exe", ["--help"])
    with pytest.raises(NotSupportedError, match="nothing is kept there"):
        verify(device)


def test_the_front_door_on_windows_names_the_way_in(server: Server) -> None:
    """In Wine's cmd, a real interpreter of such files."""
    (server.home / "inv.cmd").write_bytes((ROOT / "inv.cmd").read_bytes())
    words = server.shell("inv.cmd deploy --device pi")
    done = ran(words, env=server.environment, timeout=120)
    assert done.returncode == 4
    assert "Cause: its compilers" in done.stderr
    assert "wsl --install -d Debian), from this folder: ./inv deploy --device pi" in done.stderr


@pytest.fixture(scope="module")
def folder(bundle: Bundle, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner and a program in one folder, as Wine sees no other."""
    made = tmp_path_factory.mktemp("windows") / "wörk"
    shutil.copytree(program, made)
    shutil.copy(bundle.path / "bin" / "pte_runner.exe", made)
    offers = bundle.manifest.offers
    assert offers.verified == "wine"
    # Where nothing runs the runner its operators are read from it: here both can be done.
    assert operators_in((made / "pte_runner.exe").read_bytes()) == offers.operators
    return made


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    target = get_target("windows-x86_64")
    argv = wine.argv(target, folder / "pte_runner.exe", [*words, "--json"])
    return ran(argv, env=wine.environment(target), timeout=300)


def test_files_and_faults_have_words_in_any_letters(folder: Path) -> None:
    """The numbers are those of a deploy: test_emulated_devices.py."""
    facts = load_program(folder)
    answer = json.loads(well(run(folder, f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\ÿ")).stdout)
    assert answer["cpu"]["arch"] == "x86_64"
    assert answer["peak_rss_bytes"] > 1 << 20
    assert (folder / "ÿ0.npy").is_file()
    data = (folder / facts.file).read_bytes()
    (folder / "cut.pte").write_bytes(data[: len(data) // 2])
    cut = run(folder, "--model_path=Z:\\work\\cut.pte")
    assert (cut.returncode, json.loads(cut.stdout)["error"]["kind"]) == (3, "file")
    absent = run(folder, "--model_path=Z:\\work\\nö.pte")
    assert absent.returncode == 3
    assert "nö.pte" in json.loads(absent.stdout)["error"]["message"]
    nowhere = run(folder, f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\none\\y")
    assert nowhere.returncode == 8


def test_it_has_no_tiles_that_windows_was_not_asked_for(folder: Path) -> None:
    # tilezero tmm0, with which each of XNNPACK's AMX kernels begins. Only processors with AMX would show it.
    assert bytes.fromhex("c4e27b49c0") not in (folder / "pte_runner.exe").read_bytes()
