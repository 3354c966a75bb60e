"""Windows over SSH: the agent in place of sh, started through cmd, and a whole deploy; and the runner by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import DeadlineError, DeviceBusyError, RootError, TransferError
from core.files import sha256_file
from core.formats.bundle import RUNNER, Bundle
from core.formats.program import load_program
from core.paths import ROOT
from deploy.devices.facts import choose_target
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.store import gc
from deploy.store.store import Blob, Store
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.upkeep.upkeep import verify
from tests.faults.server import USER, Sftp, serve
from tests.faults.server import Device as Server
from tests.support.deploying import program
from toolchains.bundle.builder import build
from toolchains.bundle.offers import operators_in
from toolchains.emulation import wine
from toolchains.targets import get_target

__all__ = ["program"]

pytestmark = [pytest.mark.build, pytest.mark.export]

# What is real of the device: the SSH protocol, cmd as the login's shell, the agent as a Windows program, Windows' rules
# for files that are open, jobs, and the server process that all of its programs share: asyncssh stands before Wine's
# own cmd and Wine's disk. What is not: sshd.exe, NTFS, and PowerShell.
VERSION = "OpenSSH_for_Windows_9.5"
_HOME = "drive_c/users/wine"
_ENTER = ("nsenter", "--user", "--preserve-credentials", "--mount", "--pid", "--target")


class _Files(Sftp):
    """Paths as OpenSSH for Windows has them: /C:/Users/wine/x, or below the login's folder."""

    def map_path(self, path: bytes) -> bytes:
        """The file here."""
        disk = os.fsencode(self._device.home.parents[1])
        text = path.decode()
        if text[:3].upper() == "/C:":
            return disk + text[3:].encode()
        return os.fsencode(self._device.home) + b"/" + path


@contextlib.contextmanager
def windows(folder: Path) -> Iterator[Server]:
    """Run it; its login's folder is the device's ``home``."""
    target = get_target("windows-x86_64")
    prefix, work = folder / "prefix", folder / "work"
    shutil.copytree(wine.prefix_of(target), prefix, symlinks=True)
    work.mkdir()
    start, enter = wine.machine(target, prefix, work)
    environment = wine.environment(target)
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


CMD = "/C:/windows/system32/cmd.exe"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return build("windows-x86_64", "lean")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with windows(tmp_path_factory.mktemp("windows")) as found:
        yield found


@pytest.fixture
def root(server: Server, request: pytest.FixtureRequest) -> Path:
    """The device's root, as this machine sees it."""
    return server.home / "roots" / str(request.node.name)


@pytest.fixture
def device(server: Server, request: pytest.FixtureRequest) -> Device:
    return Device(
        name="pc", transport="ssh", host="127.0.0.1", port=server.port, user=USER, key=server.client_key,
        known_hosts=server.known_hosts, target="windows-x86_64", timeout=300.0,
        root=f"C:/users/wine/roots/{request.node.name}",
    )  # fmt: skip


def soon() -> Deadline:
    return Deadline.after(120)


def where(device: Device) -> str:
    """The absolute root, as a device reports it."""
    return f"/{device.root}"


def blob(file: Path, size: int = 300_000) -> Blob:
    file.write_bytes(os.urandom(size))
    return Blob(file, sha256_file(file), size)


def test_a_whole_deploy(device: Device, root: Path, bundle: Bundle, program: Path, dist: Path) -> None:
    settings = Settings(num_executions=2, warmup=0)
    first = deploy(device, bundle, program, settings, listeners=[])
    first.check()
    assert (first.facts.system, first.facts.machine) == ("Windows", "x86_64")
    assert choose_target(first.facts) == "windows-x86_64"
    assert "sse2" in first.facts.cpu_features
    assert not list((root / "runs").iterdir())
    again = deploy(device, bundle, program, settings, listeners=[])
    again.check()
    assert again.verified is not None
    assert (again.upload.bytes, again.verified.bundle.how) == (0, "unchanged")
    assert again.verified.program.how != "digest now"  # the runner computes it if that costs little
    # A byte that changes on the device is found: its file's times are others.
    stored = root / "bundles" / first.bundle.digest / f"{RUNNER}.exe"
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    mended = deploy(device, bundle, program, settings, listeners=[])
    mended.check()
    assert mended.verified is not None
    assert mended.verified.replaced == ("pte_runner.exe",)
    assert verify(device).damaged == ()


def test_any_program_with_its_words_streams_and_status(device: Device, bundle: Bundle) -> None:
    runner = bundle.path / f"{RUNNER}.exe"
    done = execute(device, runner, ["--capabilities", "--json"], timeout=200)
    assert (done.code, b'"lean"' in done.stdout) == (0, True)
    done = execute(device, runner, ['--model_path=it\'s "not" thére\\', "--json"], timeout=200)
    assert done.code == 3
    assert 'it\'s \\"not\\" thére' in done.stdout.decode()


def test_the_store(device: Device, root: Path, tmp_path: Path) -> None:
    with (
        open_device(device) as transport,
        Store(transport, where(device)) as store,
        Store(transport, where(device)) as two,
    ):
        facts, kind, nothing = store.ask([], None, soon())
        assert (kind, nothing) == ("absent", None)
        assert facts.root == where(device)
        assert store.open([], soon(), make=True) is not None
        assert two.ask([], None, soon())[1] == "busy"
        with pytest.raises(DeviceBusyError, match="process"):
            two.open([], soon())
        blobs = [blob(tmp_path / name) for name in ("a", "b c", "d'e")]
        part = root / f"incoming/{blobs[0].sha256}.0badcafe-1-01234567.part"
        part.write_bytes(blobs[0].source.read_bytes()[:100_000])
        assert store.survey([], soon()).stale == (f"incoming/{part.name}",)
        moved: list[int] = []
        assert store.upload(blobs, moved.append, soon()) == 100_000
        files = {f"bin/x {index}": each for index, each in enumerate(blobs)}
        looks = store.arrange("bundles/abc", files, soon())
        assert set(looks) == {f"bundles/abc/{name}" for name in files}
        assert {digest for digest, _ in store.verify(looks, soon()).values()} == {each.sha256 for each in blobs}
        store.flip("k-e", "abc", soon())
        assert store.survey([], soon()).current == {"k-e": "abc"}
        left = gc.collect(transport, store, soon(), max_bytes=0, max_days=30, in_use=set())
        assert left is not None
        store.discard(["../escape", "store/..", "bundles/abc"], soon())
        assert not (root / "bundles/abc").exists()
    with open_device(device) as transport, Store(transport, where(device)) as store:
        assert store.open([], soon()) is not None  # it was given back


def test_what_arrives_damaged_is_not_kept(device: Device, server: Server, root: Path, tmp_path: Path) -> None:
    with open_device(device) as transport, Store(transport, where(device)) as store:
        assert store.open([], soon(), make=True) is not None
        server.faults.wrote, server.faults.corrupt_at = 0, 1000
        try:
            with pytest.raises(TransferError, match="arrived damaged"):
                store.upload([blob(tmp_path / "a")], lambda _: None, soon())
        finally:
            server.faults.corrupt_at = -1
        assert not list((root / "store").iterdir())


def test_a_program_ends_with_its_time_and_with_its_connection(device: Device, server: Server) -> None:
    with open_device(device) as transport:
        begun = time.monotonic()
        with pytest.raises(DeadlineError):
            run(transport, [CMD, "/c", "for /l %i in (0,0,1) do @rem"], deadline=Deadline.after(4))
        assert time.monotonic() - begun < 60
        done = run(transport, [CMD, "/c", "exit 7"], deadline=soon(), check=False)
        assert done.code == 7
    with open_device(device) as transport, Store(transport, where(device)) as store:
        assert store.open([], soon(), make=True) is not None
        server.cut()
    with open_device(device) as transport, Store(transport, where(device)) as store:
        assert store.open([], soon(), wait=60) is not None  # its holder ended with the connection


def test_somebody_elses_folder_is_refused(device: Device, root: Path) -> None:
    root.mkdir(parents=True)
    (root / "thesis.doc").write_text("x")
    with open_device(device) as transport, Store(transport, where(device)) as store:
        with pytest.raises(RootError, match=r"thesis\.doc|not Slipway's"):
            store.open([], soon(), make=True)
        assert (root / "thesis.doc").read_text() == "x"
        (root / "thesis.doc").unlink()
        root.chmod(0o777)
        with pytest.raises(RootError, match="others may write"):
            store.open([], soon(), make=True)


def test_the_front_door_on_windows_names_the_way_in(server: Server) -> None:
    """In Wine's cmd, a real interpreter of such files."""
    (server.home / "inv.cmd").write_bytes((ROOT / "inv.cmd").read_bytes())
    words = server.shell("inv.cmd deploy --device pi")
    done = subprocess.run(words, env=server.environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 4
    assert "Cause: its compilers" in done.stderr
    assert "wsl --install -d Debian), from this folder: ./inv deploy --device pi" in done.stderr


# --- the runner by itself, under Wine


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


@pytest.fixture(scope="module")
def wine_run(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    target = get_target("windows-x86_64")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = wine.argv(target, folder / "pte_runner.exe", [*words, "--json"])
        return subprocess.run(
            argv, env=wine.environment(target), capture_output=True, text=True, timeout=300, check=False
        )

    return call


def test_files_and_faults_have_words_in_any_letters(
    wine_run: Callable[..., subprocess.CompletedProcess[str]], folder: Path
) -> None:
    """The numbers are those of a deploy: test_emulated_devices.py."""
    facts = load_program(folder)
    done = wine_run(f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\ÿ")
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["cpu"]["arch"] == "x86_64"
    assert answer["peak_rss_bytes"] > 1 << 20
    assert (folder / "ÿ0.npy").is_file()
    data = (folder / facts.file).read_bytes()
    (folder / "cut.pte").write_bytes(data[: len(data) // 2])
    cut = wine_run("--model_path=Z:\\work\\cut.pte")
    assert (cut.returncode, json.loads(cut.stdout)["error"]["kind"]) == (3, "file")
    absent = wine_run("--model_path=Z:\\work\\nö.pte")
    assert absent.returncode == 3
    assert "nö.pte" in json.loads(absent.stdout)["error"]["message"]
    nowhere = wine_run(f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\none\\y")
    assert nowhere.returncode == 8


def test_it_has_no_tiles_that_windows_was_not_asked_for(folder: Path) -> None:
    # tilezero tmm0, with which each of XNNPACK's AMX kernels begins. Only processors with AMX would show it.
    assert bytes.fromhex("c4e27b49c0") not in (folder / "pte_runner.exe").read_bytes()
