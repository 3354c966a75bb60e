"""The scripts that run on devices, under the shells and tools that devices have; and shellcheck on all our scripts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from core.errors import BundleError, DeviceBusyError, TransferError
from core.files import sha256_file
from core.paths import ROOT
from deploy.devices.conditions import Files, snapshot, wrapped
from deploy.devices.facts import choose_target
from deploy.devices.probe import probe
from deploy.scripts import script
from deploy.store import gc
from deploy.store.store import Blob, Store
from deploy.transport.base import MacTransport, Progress, Transport, run
from deploy.transport.deadline import Deadline
from deploy.upkeep.upkeep import Rolled, rollback_bundle
from tests.support.processes import executable, gone
from tests.support.userlands import AVAILABLE, ENVIRONMENT, USERLANDS, UserlandTransport, bsd, userland
from verify.suite import shells

KEY = "linux-x86_64-none"


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture(scope="module", params=(*USERLANDS, "bsd"))
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> UserlandTransport | MacTransport:
    if request.param == "bsd":
        return MacTransport(UserlandTransport(bsd(tmp_path_factory.mktemp("bin") / "bsd"), ENVIRONMENT))
    return UserlandTransport(userland(request.param, tmp_path_factory.mktemp("bin") / request.param))


@pytest.fixture
def blobs(tmp_path: Path) -> list[Blob]:
    made = []
    for name in ("a", "b c", "d'e"):
        file = tmp_path / name
        file.write_bytes(os.urandom(300_000))
        made.append(Blob(file, sha256_file(file), 300_000, executable=name == "a"))
    return made


def test_commands_that_end_at_once_are_not_waited_for(transport: Transport, tmp_path: Path) -> None:
    begun = time.monotonic()
    for _ in range(100):  # mksh lost the end of some: the supervisor's own helpers held the channel open
        run(transport, ["true"], deadline=Deadline.after(10), cwd=str(tmp_path))
    assert time.monotonic() - begun < 50
    assert gone(str(tmp_path))


def test_the_probe(transport: Transport, tmp_path: Path) -> None:
    facts = probe(transport, str(tmp_path / "x"), None, soon())
    system = "Darwin" if isinstance(transport, MacTransport) else "Linux"
    assert run(transport, ["uname", "-s"], deadline=soon()).text == f"{system}\n"
    assert (facts.system, facts.root, facts.writable) == (system, str(tmp_path / "x"), True)
    if isinstance(transport, MacTransport):
        assert isinstance(transport.inner, UserlandTransport)
        unknown = probe(transport.inner, str(tmp_path / "x"), None, soon())
        assert unknown.model_copy(update={"free": facts.free}) == facts, "a device that is just being added"
        assert (facts.board, facts.cpu, facts.memory_total) == ("Mac14,2", "Apple M2", 17_179_869_184)
        assert facts.memory_available == AVAILABLE
        told = snapshot(run(transport, ["sh", "-c", script("state"), "slipway", "/sys"], deadline=soon()).text)
        assert (told.load1, told.memory_available) == (1.52, AVAILABLE)
        assert "sme" not in facts.cpu_features
        assert choose_target(facts) == "macos-arm64"
        assert facts.noexec is False
        assert probe(transport, str(transport.inner.folder.parent / "stick" / "root"), None, soon()).noexec is True
    assert (facts.free or 0) > 0
    assert facts.cores == len(os.sched_getaffinity(0)) or facts.cores >= 1


def test_the_whole_protocol(transport: Transport, tmp_path: Path, blobs: list[Blob]) -> None:
    root = tmp_path / "it's $(here)"
    with Store(transport, str(root)) as store, Store(transport, str(root)) as other:
        facts, kind, nothing = store.ask([], None, soon())
        assert (facts.root, kind, nothing) == (str(root), "absent", None)
        assert not root.exists()
        assert store.open([], soon()) is None
        assert store.open([], soon(), make=True) is not None
        assert other.ask([], None, soon())[1:] == ("busy", None)
        with pytest.raises(DeviceBusyError, match="process"):
            other.open([], soon())
        part = root / f"incoming/{blobs[0].sha256}.0badcafe-1-01234567.part"
        part.write_bytes(blobs[0].source.read_bytes()[:100_000])
        assert store.survey([], soon()).stale == (f"incoming/{part.name}",)
        moved: list[int] = []
        assert store.upload(blobs, moved.append, soon()) == 100_000
        assert sum(moved) == 900_000
        for number, digest in enumerate(("0" * 64, "1" * 64)):
            files = {"bin/a": blobs[0], "lib/b c": blobs[1 + number]}
            store.arrange(f"bundles/{digest}", files, soon())
            store.flip(KEY, digest, soon())
        found = store.survey([f"store/{blobs[0].sha256}", "store/none"], soon())
        assert {name: look.size for name, look in found.looks.items()} == {f"store/{blobs[0].sha256}": 300_000}
        assert found.current == {KEY: "1" * 64}
        assert found.usage > 900_000
        assert found.left == ()
        assert (root / f"current/{KEY}/bin/a").stat().st_mode & 0o777 == 0o555
        assert rollback_bundle(store, KEY, soon()) == Rolled("0" * 64, "1" * 64)
        assert (root / f"current/{KEY}").readlink().name == "0" * 64
        (root / f"previous/{KEY}/lib/b c").unlink()
        with pytest.raises(BundleError, match="is damaged"):
            rollback_bundle(store, KEY, soon())
        assert (root / f"current/{KEY}").readlink().name == "0" * 64, "a damaged bundle is not gone back to"
        done = gc.collect(store, soon(), max_bytes=0, max_days=1)
        assert (done.removed, done.left_files) == ((), 3)
        (root / f"previous/{KEY}").unlink()
        done = gc.collect(store, soon(), max_bytes=0, max_days=1)
        assert set(done.removed) == {f"bundles/{'1' * 64}", f"store/{blobs[2].sha256}"}
        _run_in_one_trip(transport, store, blobs)
    with Store(transport, str(root)) as again:
        survey = again.ask([f"bundles/{'0' * 64}/bin/", "store/none"], None, soon())[2]
        assert survey is not None, "given back"
        assert {name: look.size for name, look in survey.looks.items()} == {f"bundles/{'0' * 64}/bin/a": 300_000}
    assert [path.name for path in (root / "runs").iterdir()] == []
    assert gone(str(tmp_path))


def _run_in_one_trip(transport: Transport, store: Store, blobs: list[Blob]) -> None:
    looks = store.arrange("programs/x", {"-n $(x)": blobs[1]}, soon())
    assert list(looks) == ["programs/x/-n $(x)"]
    (folder := Path(store.path("programs/x"))).touch()
    os.utime(folder, (1, 1))
    files = Files(str(folder), store.owner, 1000)
    script = 'cat ../../programs/x/-n* >output1.npy; echo "{}" >result.json; echo abc >output0.npy; '
    script += 'echo x >"output 2.npy"; exit 3'
    done = run(
        transport, wrapped(["sh", "-c", script], "", files),
        cwd=store.run_folder, pidfile=store.pidfile, deadline=soon(), check=False,
    )  # fmt: skip
    assert done.code == 3
    assert files.brought(done.stdout) == {"result.json": b"{}\n", "output0.npy": b"abc\n"}
    assert (Path(store.run_folder) / "output1.npy").read_bytes() == blobs[1].source.read_bytes()
    assert folder.stat().st_mtime > 1, "garbage collection sees that it was used"
    assert store.survey(["programs/x/"], soon()).looks["programs/x/-n $(x)"] == looks["programs/x/-n $(x)"]


class Counting(UserlandTransport):
    """Says how many files were read back, and damages what is put if it is told to."""

    fetched = 0
    damage = False

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        super().put(local, remote, progress, deadline, offset)
        if self.damage:
            with Path(remote).open("r+b") as file:
                file.write(b"damaged")

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        self.fetched += 1
        super().get(remote, local, limit, deadline)


def bare(folder: Path, program: str) -> Counting:
    """A device whose only way to a SHA-256 is ``program``, or none."""
    here = userland("toybox", folder / "bin")
    kept = here / "kept"
    (here / "sha256sum").rename(kept)
    if program == "openssl":
        (here / "openssl").symlink_to(str(shutil.which("openssl")))
    elif program in {"toybox", "busybox"}:
        script = f'#!{shutil.which("sh")}\n[ "$1" = sha256sum ] && exec {shlex.quote(str(kept))}\nexit 127\n'
        executable(here / program, script)
    return Counting(here)


@pytest.mark.parametrize(("program", "read_back"), [("openssl", 0), ("toybox", 0), ("busybox", 0), ("", 3)])
def test_uploads_are_verified_by_whatever_there_is(
    tmp_path: Path, blobs: list[Blob], program: str, read_back: int
) -> None:
    device = bare(tmp_path, program)
    with Store(device, str(tmp_path / "root")) as store:
        store.open([], soon(), make=True)
        store.upload(blobs, lambda _: None, soon())
        assert device.fetched == read_back
        assert {file.name for file in (tmp_path / "root/store").iterdir()} == {blob.sha256 for blob in blobs}
        assert [sha256_file(file) == file.name for file in (tmp_path / "root/store").iterdir()] == [True] * 3

        (tmp_path / "e").write_bytes(b"another" * 100)
        device.damage = True
        with pytest.raises(TransferError, match="e arrived damaged"):
            store.upload([Blob(tmp_path / "e", sha256_file(tmp_path / "e"), 700)], lambda _: None, soon())
        assert len(list((tmp_path / "root/store").iterdir())) == 3
        assert list((tmp_path / "root/incoming").iterdir()) == []


def test_every_script_that_git_has_is_read() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    there = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    ours = {name for name in there if name.endswith(".sh") or (ROOT / name).read_bytes().startswith(b"#!/bin/sh\n")}
    assert len(ours) > 10
    assert ours == {file.relative_to(ROOT).as_posix() for file in shells.scripts()}


@pytest.mark.parametrize(("line", "found"), [("rm -rf $1", "SC2086"), ("[[ -e $1 ]]", "SC3010")])
def test_a_wrong_script_is_found(tmp_path: Path, line: str, found: str) -> None:
    script = tmp_path / "wrong.sh"
    script.write_text(f"# shellcheck shell=sh\n{line}\n", encoding="utf-8")
    done = shells.check([script], tmp_path)
    assert done.returncode == 1
    assert found in done.stdout
