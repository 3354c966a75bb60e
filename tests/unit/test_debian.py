"""Debian's archive: a small archive made here, attacks on it, and what is kept of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from core.errors import HostError
from core.files import sealed, sha256_file, write_atomic
from tests.support.archive import Archive, make_deb, make_key
from toolchains.debian import client as debian_client
from toolchains.debian import packages as debian
from toolchains.debian.client import ArchiveError
from toolchains.debian.reader import Reader
from toolchains.debian.tree import own_loader_argv

KEY = make_key()
"""Made once: it signs every archive here."""
DAY = 86400.0


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("debs")
    return [
        make_deb(folder, "tool", {"usr/bin/tool": "tool"}, "1:2.0-1", depends="libtool1 (>= 1), absent | choice"),
        make_deb(folder, "libtool1", {"usr/lib/x86_64-linux-gnu/libtool.so.1": "library"}, depends="virtual"),
        make_deb(folder, "choice", {"usr/share/choice": "choice"}),
        make_deb(folder, "enemy", {"usr/share/enemy": "enemy"}, Provides="virtual", Conflicts="choice"),
        make_deb(folder, "provider", {"usr/share/provider": "provider"}, Provides="virtual"),
    ]


@pytest.fixture
def archive(tmp_path: Path, debs: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """The archive, served, and this machine trusts its key."""
    made = Archive(tmp_path / "archive", KEY, packages=list(debs))
    made.publish()
    keyring = tmp_path / "keys.pgp"
    keyring.write_bytes(bytes(KEY.extract_certificate()))
    monkeypatch.setattr(debian_client, "apts_setting", lambda _: "")
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    monkeypatch.setenv("SLIPWAY_DEBIAN_KEYRING", str(keyring))
    with made.served():
        monkeypatch.setenv("SLIPWAY_DEBIAN_MIRROR", made.uri)
        yield made


def refresh() -> None:
    Reader("bookworm", "amd64").refresh()


def names(files: list[Path]) -> list[str]:
    return sorted(file.name.partition("_")[0] for file in files)


def test_packages_come_with_what_they_need_and_the_second_time_from_the_cache(archive: Archive) -> None:
    files = debian.fetch("bookworm", "amd64", ["tool"], closure=True)
    # "absent" is not in the archive, so its alternative; "enemy" provides what is needed, but conflicts with that.
    assert names(files) == ["choice", "libtool1", "provider", "tool"]
    assert files[0].name == "tool_1%3a2.0-1_amd64.deb"
    assert sha256_file(files[0]) == sha256_file(archive.packages[0])
    asked = len(archive.asked)
    assert debian.fetch("bookworm", "amd64", ["tool"], closure=True) == files
    assert names(debian.fetch("bookworm", "amd64", ["tool"])) == ["tool"]
    assert len(archive.asked) == asked, "the lists are fresh and the files are kept"
    assert names(debian.fetch("bookworm", "amd64", ["enemy=1.0-1"])) == ["enemy"]
    assert archive.asked[asked:] == ["/pool/enemy_1.0-1_amd64.deb"]
    root = debian.tree("bookworm", "amd64", ["tool"], closure=True)
    assert (root / "usr/bin/tool").read_text() == "tool"
    assert debian.versions(root)["tool"] == "1:2.0-1"


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


ATTACKS: dict[str, tuple[Callable[[Archive], object], str]] = {
    "a changed byte": (lambda a: flip(a.signed), "signature"),
    "a changed word": (
        lambda a: a.signed.write_bytes(a.signed.read_bytes().replace(b"binary-amd64", b"binary-amd65")),
        "signature",
    ),
    "cut short": (lambda a: cut(a.signed), "signature"),
    "another key": (lambda a: a.sign(key=make_key()), "signature"),
    "no signature": (lambda a: a.signed.write_text("Origin: Debian\nCodename: bookworm\n"), "signature"),
    "too long": (lambda a: a.signed.write_bytes(a.signed.read_bytes() + b"\n" * (5 << 20)), "more than 4194304"),
    "another suite": (lambda a: a.sign(Codename="buster"), "not Debian bookworm's"),
    "another archive": (lambda a: a.sign(Origin="Debian Backports"), "not Debian bookworm's"),
    "no date": (lambda a: a.sign(Date=""), "no date"),
    "expired": (lambda a: a.sign(until=time.time() - DAY), "was valid until"),
    "from the future": (lambda a: a.sign(Date=formatdate(time.time() + DAY)), "in the future"),
    "a changed list": (lambda a: flip(a.list_file), "not the file that was expected"),
    "a list cut short": (lambda a: cut(a.list_file), "of"),
    "a longer list": (lambda a: a.list_file.write_bytes(a.list_file.read_bytes() + b"x"), "more than"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_lists_that_are_not_debians_are_refused_in_words(archive: Archive, tmp_path: Path, attack: str) -> None:
    change, words = ATTACKS[attack]
    change(archive)
    with pytest.raises(ArchiveError) as caught:
        debian.fetch("bookworm", "amd64", ["tool"])
    assert words in str(caught.value)
    assert "SLIPWAY_DEBIAN_MIRROR" in caught.value.hint or "clock" in caught.value.hint
    assert [path for path in (tmp_path / "cache/debian").rglob("*") if path.is_file()] == [], "nothing of it is kept"


@pytest.mark.parametrize("change", [flip, cut])
def test_a_changed_package_is_refused(archive: Archive, tmp_path: Path, change: Callable[[Path], None]) -> None:
    change(archive.folder / "pool" / archive.packages[2].name)
    with pytest.raises(ArchiveError, match="not the file that was expected") as caught:
        debian.fetch("bookworm", "amd64", ["choice"])
    assert caught.value.retry
    assert list((tmp_path / "cache").rglob("*.deb")) == []


def test_what_was_left_and_what_is_not_signed_does_not_count(archive: Archive, tmp_path: Path) -> None:
    left = tmp_path / "cache/debian/bookworm-amd64/.lists.abc/list.xz"
    write_atomic(left, "half")
    refresh()
    assert not left.parent.exists()
    signed = archive.signed.read_bytes()
    other = b"Codename: sid\nSHA256:\n " + b"0" * 64 + b" 1 main/binary-amd64/Packages.xz\n\n"
    archive.signed.write_bytes(other + signed)
    refresh()
    assert names(debian.fetch("bookworm", "amd64", ["choice"])) == ["choice"]


def test_an_older_list_never_takes_the_place_of_a_newer_one(
    archive: Archive, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh()
    archive.packages.pop()
    archive.publish(Date=formatdate(time.time() - DAY))
    with pytest.raises(ArchiveError, match="older than the one that was read before"):
        refresh()
    monkeypatch.setattr(debian, "FRESH_SECONDS", -1)
    assert names(debian.fetch("bookworm", "amd64", ["provider"])) == ["provider"], "the newer one serves on"
    assert "is older than" in capsys.readouterr().err
    archive.publish(Date=formatdate(time.time() - 60))
    refresh()
    with pytest.raises(ArchiveError, match="has no provider=2"):
        debian.fetch("bookworm", "amd64", ["provider=2"])


def test_lists_past_their_end_are_accepted_only_by_apts_setting(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.sign(until=time.time() - 3 * DAY)
    with pytest.raises(ArchiveError, match="was valid until"):
        refresh()
    monkeypatch.setattr(debian_client, "apts_setting", lambda name: "false" * name.endswith("Valid-Until"))
    refresh()  # as this system's apt accepts them


def test_a_kept_list_that_somebody_changed_is_read_again(archive: Archive, tmp_path: Path) -> None:
    refresh()
    (kept,) = (tmp_path / "cache/debian/bookworm-amd64/archive").glob("*.xz")
    flip(kept)
    with pytest.raises(ArchiveError, match="damaged"):
        Reader("bookworm", "amd64").plan(["tool"], closure=False)
    flip(kept)
    kept.write_bytes(b"")
    assert names(debian.fetch("bookworm", "amd64", ["tool"])) == ["tool"]


def test_what_cannot_be_had_is_said(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveError, match="has no nothing") as caught:
        debian.fetch("bookworm", "amd64", ["nothing"])
    assert caught.value.absent
    with pytest.raises(ArchiveError, match="no list of packages for arm64"):
        debian.fetch("bookworm", "arm64", ["tool"])
    with pytest.raises(ArchiveError, match="404"):
        debian.fetch("trixie", "amd64", ["tool"])
    with pytest.raises(ArchiveError, match=r"no Debian \.\./bookworm"):
        Reader("../bookworm", "amd64").refresh()
    monkeypatch.setenv("SLIPWAY_DEBIAN_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(ArchiveError, match="failed") as caught:
        refresh()
    assert caught.value.retry
    assert "network" in caught.value.hint
    monkeypatch.setenv("SLIPWAY_DEBIAN_MIRROR", "ftp://127.0.0.1:9")
    with pytest.raises(ArchiveError, match="cannot be read"):
        refresh()


@pytest.mark.parametrize("path", ["../outside.deb", "/etc/passwd", "http://other.example/x.deb"])
def test_a_list_names_files_of_the_archive_only(archive: Archive, path: str) -> None:
    extra = f"Package: bad\nVersion: 1\nArchitecture: all\nFilename: {path}\nSize: 1\nSHA256: {'0' * 64}\n"
    archive.publish(extra=extra)
    with pytest.raises(ArchiveError, match="not a path in the archive"):
        debian.fetch("bookworm", "amd64", ["bad"])


def test_sources_and_pinned_packages_behind_newer_ones(archive: Archive) -> None:
    digest = hashlib.sha256(b"upstream").hexdigest()
    for folder in ("t/tool", "libt/libtool"):
        tarball = archive.folder / "pool/main" / folder / "tool_2.0.orig.tar.xz"
        write_atomic(tarball, "upstream")
        assert debian.source("bookworm", folder.split("/")[1], tarball.name, digest).read_bytes() == b"upstream"
    with pytest.raises(HostError, match="not the file that was expected"):
        debian.source("bookworm", "tool", tarball.name, "0" * 64)
    with pytest.raises(HostError, match="no longer has") as caught:
        debian.source("bookworm", "tool", "tool_1.9.orig.tar.xz", "1" * 64)
    assert "INVOKE_SLIPWAY_SOURCES=git" in caught.value.hint
    name = "choice_0.9-1_amd64.deb"
    (archive.folder / "pool" / name).write_bytes(b"older")
    assert debian.binary("bookworm", name, hashlib.sha256(b"older").hexdigest()).read_bytes() == b"older"
    with pytest.raises(HostError, match=r"no longer has choice 0\.8-1 for amd64") as caught:
        debian.binary("bookworm", "choice_0.8-1_amd64.deb", "0" * 64)
    assert "there is 1.0-1 now" in caught.value.cause
    assert "toolchains.debian.fetch_source pins bookworm amd64 choice" in caught.value.hint
    with pytest.raises(HostError, match="not the file that was expected"):
        debian.binary("bookworm", "choice_1.0-1_amd64.deb", "0" * 64)


def test_a_changed_file_in_the_cache_is_found_out(archive: Archive) -> None:
    (file,) = debian.fetch("bookworm", "amd64", ["choice"])
    right = file.read_bytes()
    flip(file)
    archive.asked.clear()
    assert debian.fetch("bookworm", "amd64", ["choice"]) == [file]
    assert archive.asked == ["/pool/choice_1.0-1_amd64.deb"]
    assert file.read_bytes() == right


def test_lists_that_are_out_of_date_are_read_again_once(archive: Archive, tmp_path: Path) -> None:
    refresh()
    archive.packages[2] = make_deb(tmp_path, "choice", {"usr/share/choice": "newer"}, "1.1-1")
    (archive.folder / "pool/choice_1.0-1_amd64.deb").unlink()
    archive.publish()
    archive.asked.clear()
    (file,) = debian.fetch("bookworm", "amd64", ["choice"])
    assert file.name == "choice_1.1-1_amd64.deb"
    assert archive.asked.count("/dists/bookworm/InRelease") == 1


def test_a_pinned_package_is_fetched_once_and_replaced_by_its_update(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    name, digest = "choice_1.0-1_amd64.deb", sha256_file(archive.packages[2])
    assert debian.binary("bookworm", "choice_1.0-1+deb12u1_amd64.deb", "0" * 64).name == name
    assert "choice 1.0-1+deb12u1 is gone from Debian bookworm: 1.0-1 took its place" in capsys.readouterr().err
    archive.asked.clear()
    file = debian.binary("bookworm", name, digest)
    assert (file.name, sha256_file(file), archive.asked) == (name, digest, [])


def test_a_tree_is_made_once_and_again_when_it_was_changed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = debian.tree("bookworm", "amd64", ["tool"])
    assert root.name.startswith("tool-")
    with monkeypatch.context() as patch:
        patch.setattr(debian, "fetch", lambda *_args: pytest.fail("asked again"))
        assert debian.tree("bookworm", "amd64", ["tool"]) == root
    with pytest.raises(HostError, match="not in the unpacked packages"):
        own_loader_argv(root, "usr/bin/nothing")
    (root / "usr/bin/tool").write_text("loot", encoding="utf-8")
    sealed._SEEN.clear()  # as in the next process
    assert debian.tree("bookworm", "amd64", ["tool"]) == root
    assert (root / "usr/bin/tool").read_text() == "tool"
    assert f"making {root.name} again: something has changed usr/bin/tool" in capsys.readouterr().err
