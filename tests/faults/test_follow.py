"""Large files are followed as they arrive: their digest is there at once, and wrong ones are noticed as ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.errors import TransferError
from core.files import sha256_file
from deploy import follow
from deploy.deadline import Deadline
from deploy.inventory import Device
from deploy.pipeline import open_device
from deploy.store import Blob, Store
from tests.faults import server
from tests.userlands import USERLANDS, UserlandTransport, userland

SIZE = 3_000_001


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests that were there at the uploads' ends; pieces are small."""
    for name, value in (("FROM", 2 << 20), ("PIECE", 1 << 20), ("BEHIND", 1 << 20)):
        monkeypatch.setattr(follow, name, value)
    seen: list[str] = []
    real = follow.Follower.digest

    def digest(self: follow.Follower, deadline: Deadline) -> str:
        seen.append(real(self, deadline))
        return seen[-1]

    monkeypatch.setattr(follow.Follower, "digest", digest)
    return seen


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    file = tmp_path / "payload.bin"
    file.write_bytes(os.urandom(SIZE))
    return Blob(file, sha256_file(file), SIZE)


@pytest.mark.parametrize("name", USERLANDS)
def test_the_digest_is_there_at_the_end(name: str, tmp_path: Path, blob: Blob, found: list[str]) -> None:
    transport = UserlandTransport(userland(name, tmp_path / "bin"))
    with Store(transport, str(tmp_path / "it's $(here)")) as store:
        store.open([], soon(), make=True)
        store.upload([blob], lambda _: None, soon())
        assert Path(store.path(f"store/{blob.sha256}")).read_bytes() == blob.source.read_bytes()
    assert found == [blob.sha256]


@pytest.mark.parametrize("begun", [0, 1_500_000])
def test_over_ssh_and_from_the_middle(
    board: server.Device, device: Device, blob: Blob, found: list[str], begun: int
) -> None:
    root = board.home / ".slipway"
    (root / "incoming").mkdir(parents=True)
    if begun:
        part = root / f"incoming/{blob.sha256}.0badcafe-1-01234567.part"
        part.write_bytes(blob.source.read_bytes()[:begun])
    with open_device(device) as transport, Store(transport, str(root)) as store:
        store.open([], soon(), make=True)
        assert store.upload([blob], lambda _: None, soon()) == begun
    assert found == [blob.sha256]
    assert sha256_file(root / f"store/{blob.sha256}") == blob.sha256


@pytest.mark.parametrize("place", [0, SIZE // 2, SIZE - 1])
def test_damaged_on_the_way(board: server.Device, device: Device, blob: Blob, found: list[str], place: int) -> None:
    board.faults.corrupt_at = place
    with (
        open_device(device) as transport,
        Store(transport, str(board.home / ".slipway")) as store,
        pytest.raises(TransferError, match=r"payload\.bin arrived damaged"),
    ):
        store.open([], soon(), make=True)
        store.upload([blob], lambda _: None, soon())
    assert len(found) == 1
    assert found != [blob.sha256]
    assert list((board.home / ".slipway/store").iterdir()) == []


def test_without_what_it_takes_the_digest_is_computed_at_the_end(
    device: Device, board: server.Device, blob: Blob, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SCRIPT", "exit 1\n")
    with open_device(device) as transport, Store(transport, str(board.home / ".slipway")) as store:
        store.open([], soon(), make=True)
        store.upload([blob], lambda _: None, soon())
    assert found == [""]
    assert sha256_file(board.home / f".slipway/store/{blob.sha256}") == blob.sha256
