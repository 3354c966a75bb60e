"""The Debian client without a network: packages, the cache, unpacking."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from core.errors import HostError
from core.files import sealed, sha256_file
from toolchains.debian import packages as debian
from toolchains.debian.client import ArchiveError, Item
from toolchains.debian.reader import Reader
from toolchains.debian.tree import library_folders, own_loader_argv, unpack


def build_deb(folder: Path, name: str, version: str, files: dict[str, str], links: dict[str, str]) -> Path:
    """A real package, made by dpkg-deb."""
    root = folder / f"{name}-root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: T <t@t.example>\n"
        f"Depends: libc6 (>= 2.36)\nDescription: test\n"
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    if "usr/bin/su" in files:
        (root / "usr/bin/su").chmod(0o4755)
    out = folder / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, out], check=True, capture_output=True)
    return out


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    """Two packages, one in the layout before merged-/usr and one after."""
    return [
        build_deb(
            tmp_path,
            "old",
            "1:1.0-1",
            {"lib/x86_64-linux-gnu/liba.so.1": "a", "usr/bin/su": "su", "etc/a.conf": "a"},
            {
                "lib64/ld.so": "/lib/x86_64-linux-gnu/liba.so.1",
                "usr/lib/x86_64-linux-gnu/liba.so": "/lib/x86_64-linux-gnu/liba.so.1",
                "etc/outside": "/nowhere/else",
            },
        ),
        build_deb(tmp_path, "new", "2.0", {"usr/lib/x86_64-linux-gnu/private/libb.so.2": "b"}, {"lib": "usr/lib"}),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_unpacking_merges_usr_and_makes_links_relative(tmp_path: Path, packages: list[Path], order: int) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    if order == 1:
        unpack(packages[::-1], root)
    else:
        unpack(packages[:1], root)
    assert (root / "lib").readlink() == Path("usr/lib")
    assert (root / "lib64").readlink() == Path("usr/lib64")
    assert (root / "lib64/ld.so").read_text() == "a"
    assert not (root / "usr/lib64/ld.so").readlink().is_absolute()
    assert (root / "usr/lib/x86_64-linux-gnu/liba.so").read_text() == "a"
    assert (root / "etc/outside").readlink() == Path("/nowhere/else")
    assert (root / "usr/bin/su").stat().st_mode & 0o7777 == 0o755
    moved = tmp_path / "moved"
    root.rename(moved)
    assert (moved / "lib64/ld.so").read_text() == "a"
    if order == 1:
        base = moved / "usr/lib/x86_64-linux-gnu"
        assert library_folders(moved) == [base, base / "private"]


def test_only_what_is_kept_stays(tmp_path: Path, packages: list[Path]) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    unpack(packages[:1], root, keep=["usr/bin/*"])
    left = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())
    assert left == ["usr/bin/su"]
    assert not (root / "etc").exists()


class FakeReader(Reader):
    """An archive in a folder; counts what it is asked."""

    archive: ClassVar[dict[str, bytes]] = {}
    lists: ClassVar[dict[str, bytes] | None] = None
    asked: ClassVar[list[str]] = []

    @property
    def lists_age(self) -> float:
        return float("inf") if FakeReader.lists is None else 0.0

    def refresh(self) -> None:
        self.asked.append("refresh")
        FakeReader.lists = dict(self.archive)

    def plan(self, packages: Sequence[str], closure: bool) -> list[Item]:
        self.asked.append("plan")
        lists = FakeReader.lists or {}
        known = {name.split("_")[0] for name in lists} | {Item("", name, 0, "").spec for name in lists}
        names = [
            name for name in sorted(lists)
            if closure or {name.split("_")[0], Item("", name, 0, "").spec} & set(packages)
        ]  # fmt: skip
        if not set(packages) <= known:
            raise ArchiveError("Looking up failed.", "", "", absent=True)
        return [Item("", name, len(lists[name]), hashlib.sha256(lists[name]).hexdigest()) for name in names]

    def download(self, items: Sequence[Item], folder: Path) -> None:
        self.asked.append("download " + " ".join(item.spec for item in items))
        for item in items:
            if item.name not in self.archive:
                raise ArchiveError("Downloading failed.", "", "", absent=True)
            (folder / item.name).write_bytes(self.archive[item.name])


@pytest.fixture
def archive(tmp_path: Path, packages: list[Path], monkeypatch: pytest.MonkeyPatch) -> type[FakeReader]:
    """The client over an archive that holds `packages`."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "Reader", FakeReader)
    FakeReader.archive = {file.name: file.read_bytes() for file in packages}
    FakeReader.lists = None
    FakeReader.asked = []
    return FakeReader


def test_what_a_request_brought_is_not_downloaded_again(archive: type[FakeReader], packages: list[Path]) -> None:
    first = debian.fetch("bookworm", "amd64", ["old"])
    assert archive.asked == ["refresh", "plan", "download old=1:1.0-1"]
    assert [sha256_file(file) for file in first] == [sha256_file(packages[0])]
    archive.asked.clear()
    assert debian.fetch("bookworm", "amd64", ["old"]) == first
    assert archive.asked == []
    debian.fetch("bookworm", "amd64", ["old"])
    archive.asked.clear()
    files = debian.fetch("bookworm", "amd64", ["old"], closure=True)
    assert archive.asked == ["plan", "download new=2.0"]
    assert [file.name for file in files] == ["new_2.0_amd64.deb", "old_1%3a1.0-1_amd64.deb"]


def test_a_changed_file_in_the_cache_is_found_out(archive: type[FakeReader]) -> None:
    (file,) = debian.fetch("bookworm", "amd64", ["old"])
    right = file.read_bytes()
    file.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    archive.asked.clear()
    assert debian.fetch("bookworm", "amd64", ["old"]) == [file]
    assert archive.asked == ["plan", "download old=1:1.0-1"]
    assert file.read_bytes() == right
    file.unlink()
    debian.fetch("bookworm", "amd64", ["old"])
    assert file.read_bytes() == right


def test_a_file_with_another_digest_than_the_list_says_is_refused(archive: type[FakeReader], tmp_path: Path) -> None:
    archive.lists = dict(archive.archive)
    archive.archive["old_1%3a1.0-1_amd64.deb"] += b"x"
    with pytest.raises(HostError, match="not the file"):
        debian.fetch("bookworm", "amd64", ["old"])
    folder = tmp_path / "cache/debian/bookworm-amd64"
    assert list((folder / "pool").iterdir()) == []
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_lists_that_are_out_of_date_are_read_again_once(archive: type[FakeReader], packages: list[Path]) -> None:
    archive.lists = {"old_0.9_amd64.deb": b"gone from the archive"}
    files = debian.fetch("bookworm", "amd64", ["old"])
    assert [file.name for file in files] == [packages[0].name]
    assert archive.asked == ["plan", "download old=0.9", "refresh", "plan", "download old=1:1.0-1"]
    archive.asked.clear()
    archive.lists = dict(archive.archive)
    with pytest.raises(HostError, match="Looking up"):
        debian.fetch("bookworm", "amd64", ["nosuch"])
    assert archive.asked == ["plan", "refresh", "plan"]


def test_a_pinned_package_that_is_another_file_or_gone_is_refused(
    archive: type[FakeReader], packages: list[Path]
) -> None:
    with pytest.raises(HostError, match=r"no longer has old 1:0\.9-1 for amd64") as caught:
        debian.binary("bookworm", "old_1%3a0.9-1_amd64.deb", "0" * 64)
    assert "there is 1:1.0-1 now" in caught.value.cause
    assert "toolchains.debian.pins bookworm amd64 old" in caught.value.hint
    with pytest.raises(HostError, match="not the file that was pinned"):
        debian.binary("bookworm", packages[0].name, "0" * 64)


def test_a_pinned_package_is_fetched_once_and_replaced_by_its_update(
    archive: type[FakeReader], packages: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = debian.binary("bookworm", "old_1%3a1.0-1+deb12u1_amd64.deb", "0" * 64)
    assert file.name == packages[0].name
    assert "old 1:1.0-1+deb12u1 is gone from Debian bookworm: 1:1.0-1 took its place" in capsys.readouterr().err
    name, digest = packages[0].name, sha256_file(packages[0])
    file = debian.binary("bookworm", name, digest)
    assert (file.name, sha256_file(file)) == (name, digest)
    archive.asked.clear()
    archive.archive.clear()  # gone from the archive: it is here
    assert debian.binary("bookworm", name, digest) == file
    assert archive.asked == []


def test_a_pinned_package_is_had_from_a_mirror_whose_lists_are_refused(
    archive: type[FakeReader], packages: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeReader) -> None:
        raise ArchiveError("Reading the list failed.", "", "", half_updated=True)

    def pinned(self: FakeReader, filename: str, sha256: str, folder: Path, newest: object = None) -> Path:
        (folder / filename).write_bytes(packages[0].read_bytes())
        return folder / filename

    monkeypatch.setattr(FakeReader, "refresh", refuse)
    monkeypatch.setattr(FakeReader, "download_pinned", pinned)
    file = debian.binary("bookworm", packages[0].name, sha256_file(packages[0]))
    assert file.read_bytes() == packages[0].read_bytes()
    with pytest.raises(HostError, match="Reading the list failed"):
        debian.binary("bookworm", packages[0].name, "0" * 64)


def test_a_tree_is_made_once_and_survives_without_the_network(
    archive: type[FakeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = debian.tree("bookworm", "amd64", ["old"])
    assert (root / "usr/bin/su").read_text() == "su"
    assert debian.versions(root) == {"old": "1:1.0-1"}
    assert root.name.startswith("old-")
    monkeypatch.setattr(debian, "fetch", lambda *_args: pytest.fail("asked again"))
    assert debian.tree("bookworm", "amd64", ["old"]) == root
    with pytest.raises(HostError, match="not in the unpacked packages"):
        own_loader_argv(root, "usr/bin/nothing")


def test_a_changed_tree_is_unpacked_again(archive: type[FakeReader], capsys: pytest.CaptureFixture[str]) -> None:
    root = debian.tree("bookworm", "amd64", ["old"])
    (root / "usr/bin/su").write_text("us", encoding="utf-8")
    sealed._SEEN.clear()  # as in the next process
    assert debian.tree("bookworm", "amd64", ["old"]) == root
    assert (root / "usr/bin/su").read_text() == "su"
    assert f"unpacked {root.name} again: something had changed usr/bin/su" in capsys.readouterr().err
