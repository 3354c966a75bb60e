"""Roots that are not ours: somebody's home, folders that another user planted, links; nothing there is touched."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from core.errors import RootError, SlipwayError, TransferError
from core.files import write_atomic
from deploy import scripts
from deploy.devices.inventory import Device
from deploy.run import pipeline as attempts
from deploy.run.connect import open_device
from deploy.run.execute import execute
from deploy.store.store import Store
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport
from deploy.upkeep import upkeep
from tests.faults import server, tiny
from tests.faults.tiny import Tiny
from tests.support.processes import gone
from tests.support.userlands import EnvTransport

pytestmark = pytest.mark.usefixtures("dist")  # results go to a folder of the test's own

STRANGER = 12345
"""Another user's number."""
AS_ROOT = os.geteuid() == 0


@pytest.fixture
def common(tmp_path: Path) -> Iterator[Path]:
    """A folder that all may write to, as /tmp is."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    assert gone(str(tmp_path))


def state(folder: Path) -> dict[str, tuple[str, int, bytes | str]]:
    """Everything below ``folder``: its kind and mode, and its bytes or where it points."""
    found: dict[str, tuple[str, int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = ("link", mode, str(path.readlink()))
        else:
            found[name] = ("folder", mode, "") if path.is_dir() else ("file", mode, path.read_bytes())
    return found


def everything(small: Tiny, device: Device, tmp_path: Path) -> list[Callable[[], object]]:
    """Every command that writes to a device or removes from it."""
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    return [
        lambda: small.deploy(device),
        lambda: execute(device, script),
        lambda: upkeep.collect(device, days=0),
        lambda: upkeep.rollback(device),
        lambda: upkeep.verify(device),
    ]


def refused(actions: Sequence[Callable[[], object]], *words: str) -> None:
    """Each of ``actions`` ends in a `RootError` that says ``words``."""
    for action in actions:
        with pytest.raises(RootError) as caught:
            action()
        assert caught.value.exit_code == 27
        assert all(word in str(caught.value) for word in words), str(caught.value)
        assert caught.value.hint


def test_a_home_that_has_folders_of_our_names(
    small: Tiny, board: server.Device, device: Device, tmp_path: Path
) -> None:
    """``root = "."``, and a folder ``runs`` of one's own: the first deploy removed it."""
    for name in ("runs/marathon/photo.jpg", "store/receipts.txt", "lock/1/key", "incoming/letter.part", "bundles/wood"):
        write_atomic(board.home / name, name)
    before = state(board.home)
    refused(
        everything(small, device.model_copy(update={"root": "."}), tmp_path),
        str(board.home), "it holds", "bundles", "devices.toml",
    )  # fmt: skip
    assert state(board.home) == before
    assert small.deploy(device).upload.files == 4, "the usual root is a folder of its own"
    assert {name: what for name, what in state(board.home).items() if not name.startswith(".slipway")} == before


def test_an_empty_folder_is_taken_and_marked(small: Tiny, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    small.deploy(tiny.local(root))
    words = (root / ".slipway-root").read_text().split()
    assert words[:2] == ["slipway-root", "1"]
    assert len(words[2]) == 32
    small.deploy(tiny.local(root))
    assert (root / ".slipway-root").read_text().split() == words
    private = [path for path in root.iterdir() if path.stat().st_mode & 0o077]
    assert private == []


@pytest.mark.parametrize("text", ["slipway-root 2 00", "a note of mine"])
def test_a_marker_of_another_kind(small: Tiny, tmp_path: Path, text: str) -> None:
    root = tmp_path / "root"
    write_atomic(root / ".slipway-root", text + "\n")
    refused([lambda: small.deploy(tiny.local(root))], ".slipway-root")
    assert [path.name for path in root.iterdir()] == [".slipway-root"]


def test_a_marker_that_a_power_cut_left_empty(small: Tiny, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / ".slipway-root").touch(0o600)
    small.deploy(tiny.local(root))
    assert (root / ".slipway-root").read_text().startswith("slipway-root 1 ")


def planted(root: Path, small: Tiny, elsewhere: Path) -> None:
    """What another user prepares: links to others' files, and a program that is not the one it is named after."""
    write_atomic(elsewhere / "thesis", "ten years of work")
    for name in ("lock", "incoming", "store", "bundles", "current", "previous"):
        (root / name).mkdir(parents=True)
    (root / "runs").symlink_to(elsewhere)
    runner = small.bundle.manifest.files[0]
    evil = f"#!/bin/sh\ntouch '{elsewhere}/pwned'\n".encode()
    (root / "store" / runner.sha256).write_bytes(evil + b"#" * (runner.size - len(evil)))
    (root / "store" / runner.sha256).chmod(0o555)
    for path in (root, *root.rglob("*")):
        if AS_ROOT:
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def test_a_root_that_another_user_planted(small: Tiny, common: Path, tmp_path: Path) -> None:
    root, elsewhere = common / "slipway", tmp_path / "elsewhere"
    planted(root, small, elsewhere)
    before = state(tmp_path)
    why = "belongs to another user" if AS_ROOT else "runs"
    refused(everything(small, tiny.local(root), tmp_path / "tmp")[:1], str(root), why)
    assert state(tmp_path / "elsewhere") == {"thesis": before["elsewhere/thesis"]}
    assert state(root) == {name.removeprefix("tmp/slipway/"): what for name, what in before.items()
                           if name.startswith("tmp/slipway/")}  # fmt: skip


def test_a_root_that_is_not_the_logins(small: Tiny, common: Path) -> None:
    root = Path("/usr")
    if AS_ROOT:
        root = common / "slipway"
        root.mkdir(mode=0o755)
        os.chown(root, STRANGER, STRANGER)
    refused([lambda: small.deploy(tiny.local(root))], str(root), "belongs to another user")


@pytest.mark.parametrize(
    "name", ["lock", "incoming", "store", "bundles", "programs", "runs", "current", "previous", "weights"]
)
def test_links_inside(small: Tiny, common: Path, tmp_path: Path, name: str) -> None:
    root, elsewhere = common / "slipway", tmp_path / "elsewhere"
    write_atomic(elsewhere / "1/thesis", "ten years of work")
    small.deploy(tiny.local(root))
    shutil.rmtree(root / name)
    (root / name).symlink_to(elsewhere)
    refused([lambda: small.deploy(tiny.local(root))], f"{root}/{name}", "is a link")
    assert (elsewhere / "1/thesis").read_text() == "ten years of work"
    assert [path.name for path in elsewhere.iterdir()] == ["1"]


def test_a_root_that_is_a_link(small: Tiny, common: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (common / "slipway").symlink_to(tmp_path / "elsewhere")
    refused([lambda: small.deploy(tiny.local(common / "slipway"))], f"{common}/slipway", "is a link")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
@pytest.mark.parametrize("place", ["root", "root/store", "root/.slipway-root"])
def test_folders_that_others_may_write_to(small: Tiny, tmp_path: Path, place: str, mode: int) -> None:
    small.deploy(tiny.local(tmp_path / "root"))
    (tmp_path / place).chmod(mode)
    refused(
        [lambda: small.deploy(tiny.local(tmp_path / "root"))], str(tmp_path / place), "others may write", "chmod go-w"
    )


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_above_that_others_may_write_to(small: Tiny, tmp_path: Path, exists: bool) -> None:
    """They could put another root in the place of ours; a sticky one, as /tmp, lets nobody do so."""
    above = tmp_path / "above"
    above.mkdir()
    if exists:
        small.deploy(tiny.local(above / "a/root"))
    above.chmod(0o777)
    refused([lambda: small.deploy(tiny.local(above / "a/root"))], str(above), "others may write")
    assert exists or list(above.iterdir()) == []
    above.chmod(0o1777)
    small.deploy(tiny.local(above / "a/root"))


@pytest.mark.skipif(not AS_ROOT, reason="only root makes another user's links")
@pytest.mark.parametrize("below", ["", "/further"])
def test_a_link_of_another_user_above(small: Tiny, common: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (common / "link").symlink_to(tmp_path / "elsewhere")
    os.chown(common / "link", STRANGER, STRANGER, follow_symlinks=False)
    refused(
        [lambda: small.deploy(tiny.local(f"{common}/link{below}/root"))], f"{common}/link", "belongs to another user"
    )
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_of_ones_own_above(small: Tiny, tmp_path: Path) -> None:
    """As a home on another disk has one."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    small.deploy(tiny.local(tmp_path / "home/.slipway"))
    assert (tmp_path / "disk/.slipway/.slipway-root").is_file()


def test_no_home(small: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went to /tmp, where others write too."""
    monkeypatch.setattr(attempts, "open_device", lambda *_: EnvTransport("-u", "HOME"))
    name = f"slipway-{os.getpid()}"
    refused([lambda: small.deploy(tiny.local(name))], "HOME", "devices.toml")
    with Store(EnvTransport("-u", "HOME"), name) as store, pytest.raises(SlipwayError):
        store.open([], Deadline.after(20), make=True)
    assert not Path(tempfile.gettempdir(), name).exists()
    small.deploy(tiny.local(tmp_path / "root"))


def test_nothing_is_written_through_a_link(board: server.Device, device: Device, tmp_path: Path) -> None:
    """What lies under the name of an unfinished file is never opened: neither a file nor what a link points to."""
    file = tmp_path / "file"
    file.write_bytes(b"payload")
    (board.home / "precious").write_text("precious")
    (board.home / "link").symlink_to(board.home / "precious")
    for way in (open_device(device), LocalTransport()):
        with way as transport:
            for name in ("link", "precious"):
                with pytest.raises(TransferError):
                    transport.put(file, str(board.home / name), lambda _: None, Deadline.after(20))
    assert (board.home / "precious").read_text() == "precious"
    assert (board.home / "link").is_symlink()


def test_commands_are_short_enough_for_dropbear() -> None:
    from deploy.store.store import WORDS

    names = scripts.names()
    assert len(names) > 13
    longest = max(len(scripts.script(name)) for name in names if name != "open")  # that is two commands in one
    assert longest + WORDS < 8700
