"""Files that change on a device after they were verified: found before they run, replaced, and said."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import RunError, TransferError
from core.files import sha256_file, write_atomic, write_json
from core.paths import cache_dir
from deploy.devices.inventory import Device
from deploy.run import pipeline as attempts
from deploy.run.events import Event
from deploy.run.execute import execute
from deploy.run.result import Result, Verified
from deploy.store import vouch
from deploy.upkeep import upkeep
from tests.faults import tiny
from tests.faults.sabotage import Sabotage
from tests.faults.tiny import Tiny
from tests.support.processes import executable
from tests.support.userlands import EnvTransport

pytestmark = pytest.mark.usefixtures("dist")  # results go to a folder of the test's own

WEIGHTS = 1360
CHANGED = re.compile(r"[^:]+:[^:]+:[^:]+$")  # the time of the last change of a look: "SIZE INODE:MODIFIED:CHANGED"


@pytest.fixture
def small(tmp_path: Path) -> Tiny:
    return tiny.make(tmp_path / "tiny", seed=int.from_bytes(os.urandom(4)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    write_atomic(home / "precious", "precious")
    return home / ".slipway"


@pytest.fixture
def device(root: Path) -> Device:
    return tiny.local(root)


def seen(result: Result) -> Verified:
    assert result.verified is not None
    return result.verified


def changed(data: bytes) -> bytes:
    """As many other weights, of four bytes each; as long as before."""
    noise = random.Random(7)  # noqa: S311 - the same bytes every time
    count = min(4 * WEIGHTS, len(data) // 2)
    return data[: len(data) // 4] + noise.randbytes(count) + data[len(data) // 4 + count :]


def in_place(file: Path) -> None:
    """Written over; the time of the last change is what it was."""
    info = file.stat()
    file.chmod(0o755)
    file.write_bytes(changed(file.read_bytes()))
    file.chmod(info.st_mode & 0o777)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def by_another(file: Path) -> None:
    """Another file is put in its place, with the same time and mode."""
    info = file.stat()
    other = file.with_name("other")
    other.write_bytes(changed(file.read_bytes()))
    other.chmod(info.st_mode & 0o777)
    os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
    other.replace(file)


def source(small: Tiny, what: str) -> Path:
    """The program, the input, or a file of the bundle."""
    return {"program": small.model, "input": small.data}.get(what, small.bundle.path / what)


def files_of(small: Tiny, root: Path, what: str) -> list[Path]:
    """All files in the root with the bytes of a `source`."""
    wanted = sha256_file(source(small, what))
    return [path for path in root.rglob("*") if path.is_file() and sha256_file(path) == wanted]


@pytest.mark.parametrize("how", [in_place, by_another])
@pytest.mark.parametrize("what", ["program", "input", "lib/payload", "bin/pte_runner"])
def test_changed_bytes_do_not_run(
    small: Tiny, device: Device, root: Path, what: str, how: Callable[[Path], None]
) -> None:
    first = small.deploy(device)
    assert (seen(first).program.how, seen(first).bundle.how) == ("digest now", "digest now")
    same = files_of(small, root, what)
    assert len(same) == 2, "in the store and where it is used, one file with two names"
    used = next(file for file in same if file.parent.name != "store")
    size = used.stat().st_size
    how(used)
    assert used.stat().st_size == size
    notes: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.text)
        if (event.step, event.kind) == ("run", "start"):
            assert tiny.whole(root.parent, root) == [], "before it runs"

    result = small.deploy(device, listeners=[listen])
    assert result.upload.files == len(seen(result).replaced) == 1
    assert "was damaged on board" in notes[0]
    assert "uploaded again" in notes[0]
    assert tiny.settled(root.parent, root) == []
    last = small.deploy(device)
    assert (seen(last).replaced, last.upload.files) == ((), 0)


@pytest.mark.parametrize("what", ["program", "lib/payload"])
def test_a_damaged_blob_of_the_store_is_not_linked(small: Tiny, device: Device, root: Path, what: str) -> None:
    """The bundle and the program are arranged anew; what the store has was changed meanwhile."""
    small.deploy(device)
    for folder in ("bundles", "programs"):
        for path in (root / folder).iterdir():
            shutil.rmtree(path)
    (file,) = files_of(small, root, what)
    in_place(file)
    result = small.deploy(device)
    assert seen(result).replaced == (source(small, what).name,)
    assert result.upload.files == 1
    assert tiny.settled(root.parent, root) == []


def test_what_did_not_change_costs_nothing(
    small: Tiny, device: Device, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small.deploy(device)
    ways = [Sabotage(root.parent) for _ in range(3)]
    left = iter(ways)
    monkeypatch.setattr(attempts, "open_device", lambda *_: next(left))
    time.sleep(1.1)
    for way in ways:
        again = small.deploy(device)
        assert way.count == 2, "no round trip more"
        assert seen(again).program.how == seen(again).bundle.how == "unchanged"
        assert seen(again).program.since == seen(first).program.since
        assert (seen(again).program.files, seen(again).bundle.files) == (2, 2)


def test_another_machine_looks_for_itself(
    small: Tiny, device: Device, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.deploy(device)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "other"))
    again = small.deploy(device)
    assert (seen(again).program.how, seen(again).bundle.how) == ("digest now", "digest now")
    assert again.upload.files == 0
    assert seen(small.deploy(device)).bundle.how == "unchanged"


def age(days: float) -> None:
    """Let everything have been verified so many days earlier."""
    for file in cache_dir("verified").glob("*.json"):
        records = vouch.Records.of(file.stem)
        moved = {sha: {look: when - days * vouch.DAY for look, when in looks.items()}
                 for sha, looks in records.seen.items()}  # fmt: skip
        write_json(file, {"schema_version": 1, "files": moved})


@pytest.fixture
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))


def rot(file: Path) -> None:
    """Bytes change below the file system, which notices nothing: the note is made to fit the new look."""
    before = file.stat()
    in_place(file)
    (notes,) = cache_dir("verified").glob("*.json")
    text = notes.read_text()
    stamp = f"{before.st_ino}:"
    records = vouch.Records.of(notes.stem)
    for looks in records.seen.values():
        for look in [look for look in looks if f" {stamp}" in look]:
            ns = file.stat().st_ctime_ns
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ns // 10**9))
            new = CHANGED.sub(f"{moment}.{ns % 10**9:09d} +0000", look)
            looks[new] = looks.pop(look)
    write_json(notes, {"schema_version": 1, "files": records.seen})
    assert notes.read_text() != text


@pytest.mark.usefixtures("_own_records")
@pytest.mark.parametrize("what", ["program", "lib/payload"])
def test_every_so_many_days_all_is_read(small: Tiny, device: Device, root: Path, what: str) -> None:
    small.deploy(device)
    rot(next(file for file in files_of(small, root, what) if file.parent.name != "store"))
    age(6.9)
    unnoticed = small.deploy(device)
    assert (seen(unnoticed).program.how, seen(unnoticed).replaced) == ("unchanged", ()), "what the result says"
    age(0.2)
    assert seen(small.deploy(device)).replaced == (source(small, what).name,)
    assert tiny.settled(root.parent, root) == []
    often = device.model_copy(update={"verify_days": 1e-9})
    again = small.deploy(often)
    assert seen(again).program.how == seen(again).bundle.how == "digest now"


@pytest.mark.usefixtures("_own_records")
@pytest.mark.parametrize("what", ["program", "input", "bin/pte_runner"])
def test_what_the_device_does_not_see_the_run_shows(tmp_path: Path, device: Device, root: Path, what: str) -> None:
    """By the runner's own digests of the program and its inputs, and by its failing where it is damaged itself."""
    small = tiny.make(tmp_path / "tiny", seed=int.from_bytes(os.urandom(4)), digests="yes")
    first = small.deploy(device)
    assert (seen(first).program.how, seen(first).bundle.how) == ("runner", "digest now")
    rot(next(file for file in files_of(small, root, what) if file.parent.name != "store"))
    with pytest.raises((TransferError, RunError)) as caught:
        small.deploy(device)
    if what != "bin/pte_runner":
        assert f"read another {'model.pte' if what == 'program' else 'input0.npy'} than was uploaded" in str(
            caught.value
        )
        assert "the same command again, which computes the digests" in caught.value.hint
    notes: list[str] = []
    result = small.deploy(device, listeners=[lambda event: notes.append(event.text) if event.kind == "note" else None])
    assert seen(result).replaced == (source(small, what).name,)
    assert result.upload.names == (source(small, what).name,)
    assert result.upload.present_files == 3
    assert "was damaged on board" in notes[0]
    assert "uploaded again" in notes[0]
    assert seen(result).program.how == "runner"
    assert tiny.settled(root.parent, root) == []
    last = small.deploy(device)
    assert (seen(last).replaced, last.upload.files, seen(last).bundle.how) == ((), 0, "unchanged")
    assert seen(last).program.text == "digest by the runner (2 files)"


def test_a_runner_that_reads_other_bytes_than_the_device(tmp_path: Path, device: Device, root: Path) -> None:
    """Nothing to replace: the device's own digest is right. What ran is not vouched for, so there is no result."""
    small = tiny.make(tmp_path / "tiny", seed=int.from_bytes(os.urandom(4)), digests="wrong")
    for _ in range(2):
        with pytest.raises(TransferError, match=r"on board read another model\.pte than was uploaded") as caught:
            small.deploy(device)
        assert "another root in devices.toml" in caught.value.hint
    assert tiny.settled(root.parent, root) == []


def test_a_failure_that_no_damage_caused_stands(tmp_path: Path, device: Device, root: Path) -> None:
    small = tiny.make(tmp_path / "tiny", seed=int.from_bytes(os.urandom(4)), digests="fails")
    for uploaded in (True, False):
        steps: list[str] = []
        with pytest.raises(RunError, match="The program failed while it ran on board"):
            small.deploy(
                device, listeners=[lambda event, kept=steps: kept.append(event.step) if event.kind == "start" else None]
            )
        assert steps.count("run") == 1
        assert ("verify" in steps) is not uploaded, "what was uploaded a moment ago was digested then"
    assert tiny.settled(root.parent, root) == []


@pytest.mark.usefixtures("_own_records")
@pytest.mark.parametrize("text", ["", "[]", '{"files": {"a": 1}}', '{"files": []}', "[" * 100_000, "\udcff", None])
def test_notes_that_cannot_be_read(small: Tiny, device: Device, text: str | None) -> None:
    small.deploy(device)
    (notes,) = cache_dir("verified").glob("*.json")
    if text is None:
        age(-1)  # of tomorrow: a clock was set back
    else:
        notes.write_bytes(text.encode(errors="surrogateescape"))
    again = small.deploy(device)
    assert (seen(again).program.how, again.upload.files) == ("digest now", 0)


@pytest.mark.usefixtures("_own_records")
def test_a_full_look(small: Tiny, device: Device, root: Path) -> None:
    small.deploy(device)
    good = upkeep.verify(device)
    assert (good.files, good.damaged) == (8, ())
    good.check("board")
    rot(next(file for file in files_of(small, root, "lib/payload") if file.parent.name != "store"))
    found = upkeep.verify(device)
    assert {path.partition("/")[0] for path in found.damaged} == {"store", "bundles"}
    with pytest.raises(TransferError, match="2 of 8 files in the store of board are damaged") as caught:
        found.check("board")
    assert "./inv deploy --device board" in caught.value.hint
    assert seen(small.deploy(device)).replaced == ("payload",)
    assert upkeep.verify(device).damaged == ()
    (root / "store" / sha256_file(small.model)).unlink()
    next((root / "programs").iterdir()).joinpath("model.pte").unlink()
    assert len(upkeep.verify(device).damaged) == 1, "the manifest names it still"


@pytest.fixture
def linkless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first folder of the PATH of a device whose file system has no hard links."""
    folder = tmp_path / "bin"
    executable(folder / "ln", '#!/bin/sh\n[ "$1" = -s ] || exit 1\nexec /bin/ln "$@"\n')
    monkeypatch.setattr(attempts, "open_device", lambda *_: EnvTransport(f"PATH={folder}:{os.environ['PATH']}"))
    return folder


def test_copies_are_verified_too(small: Tiny, device: Device, root: Path, linkless: Path) -> None:
    assert linkless.is_dir()
    first = small.deploy(device)
    used = [path for path in files_of(small, root, "program") if path.parent.name != "store"]
    assert [path.stat().st_nlink for path in used] == [1]
    assert seen(first).program.how == "digest now"
    again = small.deploy(device)
    assert (seen(again).program.how, seen(again).bundle.how) == ("unchanged", "unchanged")
    in_place(used[0])
    assert seen(small.deploy(device)).replaced == ("model.pte",)
    assert tiny.settled(root.parent, root) == []


def test_a_copy_that_comes_out_damaged(small: Tiny, device: Device, linkless: Path) -> None:
    executable(linkless / "cp", '#!/bin/sh\n/bin/cp "$@"\nfor last; do :; done\nchmod u+w "$last"\necho x >>"$last"\n')
    with pytest.raises(TransferError, match="is not what was uploaded"):
        small.deploy(device)


def test_an_executable_that_was_changed(device: Device, root: Path, tmp_path: Path) -> None:
    script = tmp_path / "hello"
    script.write_text("#!/bin/sh\necho hello\n" + "#" * 9000)
    assert execute(device, script).stdout == b"hello\n"
    blob = root / "store" / sha256_file(script)
    blob.chmod(0o755)
    text = blob.read_text().replace("echo hello", "echo pwned")
    info = blob.stat()
    blob.write_text(text)
    os.utime(blob, ns=(info.st_atime_ns, info.st_mtime_ns))
    done = execute(device, script)
    assert (done.stdout, done.uploaded) == (b"hello\n", script.stat().st_size)
    assert execute(device, script).uploaded == 0
