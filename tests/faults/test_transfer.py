"""Transfers that go wrong on the way: cut, full, damaged; and what is left of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeviceFullError, TransferError, UnreachableError
from core.files import sha256_file, write_atomic
from deploy.devices.inventory import Device
from deploy.devices.probe import MARKER
from deploy.run.connect import open_device
from deploy.store import store as store_module
from deploy.store.store import Blob, Store
from deploy.transport.base import Transport
from deploy.transport.deadline import Deadline
from tests.faults import server, tiny

SIZE = 3_000_001


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    file = tmp_path / "payload.bin"
    file.write_bytes(os.urandom(SIZE))
    return Blob(file, sha256_file(file), SIZE)


@pytest.fixture
def root(board: server.Device) -> Path:
    return board.home / ".slipway"


def files(root: Path) -> list[str]:
    """All but the mark of the root and the lock."""
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.name != MARKER)
    return sorted(str(path) for path in paths if path.parts[0] != "lock")


@contextlib.contextmanager
def opened(device: Device, root: Path) -> Iterator[tuple[Transport, Store]]:
    with open_device(device) as transport, Store(transport, str(root)) as store:
        assert store.open([], soon(), make=True) is not None
        yield transport, store


def upload(device: Device, root: Path, blob: Blob) -> None:
    with opened(device, root) as (_, store):
        store.upload([blob], lambda _: None, soon())


def test_upload_and_back(device: Device, root: Path, blob: Blob, tmp_path: Path) -> None:
    moved = 0

    def progress(count: int) -> None:
        nonlocal moved
        moved += count

    with opened(device, root) as (transport, store):
        assert store.survey([f"store/{blob.sha256}"], soon()).looks == {}
        store.upload([blob], progress, soon())
        assert store.survey([f"store/{blob.sha256}"], soon()).has(f"store/{blob.sha256}", blob)
        transport.get(store.path(f"store/{blob.sha256}"), tmp_path / "back", SIZE, soon())
        with pytest.raises(TransferError, match="longer than expected"):
            transport.get(store.path(f"store/{blob.sha256}"), tmp_path / "b", SIZE - 1, soon())
        with pytest.raises(TransferError):
            transport.get(store.path("store/none"), tmp_path / "b", SIZE, soon())
        assert not (tmp_path / "b").exists()
    assert moved == SIZE
    assert sha256_file(tmp_path / "back") == blob.sha256
    assert files(root) == [f"store/{blob.sha256}"]
    assert (root / f"store/{blob.sha256}").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("place", [0, 1_000_000, SIZE - 1])
def test_damaged_on_the_way(board: server.Device, device: Device, root: Path, blob: Blob, place: int) -> None:
    board.faults.corrupt_at = place
    with pytest.raises(TransferError, match=r"payload\.bin arrived damaged") as caught:
        upload(device, root, blob)
    assert caught.value.exit_code == 24
    assert files(root) == []
    board.faults.corrupt_at = -1
    upload(device, root, blob)
    assert files(root) == [f"store/{blob.sha256}"]


@pytest.mark.parametrize("full_after", [1, 1_500_000, SIZE])
def test_the_disk_fills_up(board: server.Device, device: Device, root: Path, blob: Blob, full_after: int) -> None:
    board.faults.full_after = full_after
    with pytest.raises(DeviceFullError, match=r"No space left on board while uploading payload\.bin") as caught:
        upload(device, root, blob)
    assert caught.value.exit_code == 23
    assert files(root) == []


def test_only_its_own_folders_are_ever_removed(device: Device, root: Path, board: server.Device) -> None:
    (root / "store").mkdir(parents=True)
    precious = [board.home / "precious", root / "store/precious"]
    for file in precious:
        file.touch()
    with open_device(device) as transport, Store(transport, str(root)) as store:
        store.discard(["../precious", "runs/../../precious", "store/precious", "runs/", "/", str(precious[0])], soon())
    assert all(file.exists() for file in precious)


def test_a_bundle_is_linked_whole_or_not_at_all(device: Device, root: Path, blob: Blob, tmp_path: Path) -> None:
    missing = Blob(tmp_path / "none", "1" * 64, 1)
    runner = Blob(blob.source, blob.sha256, blob.size, executable=True)
    with opened(device, root) as (_, store):
        store.upload([blob], lambda _: None, soon())
        with pytest.raises(TransferError):
            store.arrange("bundles/x", {"bin/a": runner, "lib/b": missing}, soon())
        assert files(root / "bundles") == []
        store.arrange("bundles/x", {"bin/a": runner, "lib/b c": blob}, soon())
    assert files(root / "bundles") == ["x/SHA256SUMS", "x/bin/a", "x/lib/b c"]
    subprocess.run(["sha256sum", "--status", "-c", "SHA256SUMS"], cwd=root / "bundles/x", check=True)
    inside = root / "bundles/x/bin/a"
    assert inside.samefile(root / f"store/{blob.sha256}"), "a link takes no space"
    assert inside.stat().st_mode & 0o777 == 0o555


def test_many_files_go_in_batches(
    device: Device, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board: server.Device
) -> None:
    monkeypatch.setattr(store_module, "BATCH", 100_000)
    blobs = []
    for index in range(5):
        file = tmp_path / f"{index}"
        file.write_bytes(os.urandom(60_000))
        blobs.append(Blob(file, sha256_file(file), 60_000))
    board.faults.cut_after = 270_000  # in the fifth file: two batches of two are safe by then
    with pytest.raises(UnreachableError), opened(device, root) as (_, store):
        store.upload(blobs, lambda _: None, soon())
    assert files(root / "store") == sorted(blob.sha256 for blob in blobs[:4])


def test_a_name_in_the_store_with_the_wrong_size_is_seen(device: Device, root: Path, blob: Blob) -> None:
    tiny.marked_root(root)
    write_atomic(root / "store" / blob.sha256, b"cut short by a power failure")
    with opened(device, root) as (_, store):
        assert not store.survey([f"store/{blob.sha256}"], soon()).has(f"store/{blob.sha256}", blob)
        store.upload([blob], lambda _: None, soon())
    assert sha256_file(root / "store" / blob.sha256) == blob.sha256


@pytest.mark.parametrize("begun", ["right", "wrong", "too long", "whole"])
def test_an_upload_goes_on_where_it_broke(
    board: server.Device, device: Device, root: Path, blob: Blob, begun: str
) -> None:
    """Whoever began it; only what the device itself proves to be the same bytes is kept."""
    data = blob.source.read_bytes()
    there = {"right": data[:1_000_000], "wrong": b"x" * 1_000_000, "too long": data + b"x", "whole": data}[begun]
    kept = {"right": 1_000_000, "wrong": 0, "too long": 0, "whole": SIZE}[begun]
    tiny.marked_root(root)
    write_atomic(root / f"incoming/{blob.sha256}.0badcafe-1-01234567.part", there)
    moved: list[int] = []
    with opened(device, root) as (_, store):
        assert store.upload([blob], moved.append, soon()) == kept
    assert sum(moved) == SIZE
    assert board.faults.wrote == SIZE - kept
    assert files(root) == [f"store/{blob.sha256}"]
    assert sha256_file(root / f"store/{blob.sha256}") == blob.sha256
