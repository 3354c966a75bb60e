"""Uploads are verified by whatever a device has for SHA-256, and by reading back where it has nothing."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from core.errors import TransferError
from core.files import sha256_file
from deploy.store.store import Blob, Store
from deploy.transport.base import Progress
from deploy.transport.deadline import Deadline
from tests.support.userlands import UserlandTransport, userland


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


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return userland("toybox", tmp_path_factory.mktemp("bin") / "toybox")


def bare(tools: Path, folder: Path, program: str) -> Counting:
    """A device whose only way to a SHA-256 is ``program``, or none."""
    here = folder / "bin"
    shutil.copytree(tools, here, symlinks=True)
    kept = here / "kept"
    (here / "sha256sum").rename(kept)
    if program == "openssl":
        (here / "openssl").symlink_to(str(shutil.which("openssl")))
    elif program in {"toybox", "busybox"}:
        script = f'#!{shutil.which("sh")}\n[ "$1" = sha256sum ] && exec {shlex.quote(str(kept))}\nexit 127\n'
        (here / program).write_text(script)
        (here / program).chmod(0o755)
    return Counting(here)


@pytest.mark.parametrize(("program", "read_back"), [("openssl", 0), ("toybox", 0), ("busybox", 0), ("", 3)])
def test_whatever_it_has(tools: Path, tmp_path: Path, program: str, read_back: int) -> None:
    device = bare(tools, tmp_path, program)
    blobs = []
    for name in ("a", "b c", "d'e"):
        (tmp_path / name).write_bytes(name.encode() * 5000)
        blobs.append(Blob(tmp_path / name, sha256_file(tmp_path / name), (tmp_path / name).stat().st_size))
    deadline = Deadline.after(60)
    with Store(device, str(tmp_path / "root")) as store:
        store.open([], deadline, make=True)
        store.upload(blobs, lambda _: None, deadline)
        assert device.fetched == read_back
        assert {file.name for file in (tmp_path / "root/store").iterdir()} == {blob.sha256 for blob in blobs}
        assert [sha256_file(file) == file.name for file in (tmp_path / "root/store").iterdir()] == [True] * 3

        (tmp_path / "e").write_bytes(b"another" * 100)
        device.damage = True
        with pytest.raises(TransferError, match="e arrived damaged"):
            store.upload([Blob(tmp_path / "e", sha256_file(tmp_path / "e"), 700)], lambda _: None, deadline)
        assert len(list((tmp_path / "root/store").iterdir())) == 3
        assert list((tmp_path / "root/incoming").iterdir()) == []
