"""Debian without a network: packages beside dpkg-deb, its keys, the system's sources, apt's answers."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from core.errors import HostError
from core.files import write_atomic
from tests.support.archive import Archive, make_deb
from tests.support.processes import executable, ran
from toolchains.debian import client, fetch_source, tree
from toolchains.debian import packages as debian
from toolchains.debian import sources as debian_sources
from toolchains.debian.sources import Mirror, in_deb822, in_list, read_sources
from toolchains.debian.tree import library_folders, unpack


def packed(root: Path, package: Path) -> Path:
    """The package made again, of what its folder has now."""
    argv: list[str | Path] = ["dpkg-deb", "-Zxz", "--build", "--root-owner-group", root, package]
    subprocess.run(argv, check=True, capture_output=True)
    return package


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with what makes trouble: links of both kinds, modes, odd names, an empty folder."""
    made = make_deb(tmp_path, "odd", {"usr/bin/su": "su", "usr/share/a b/ü": "text"}, depends="libc6 (>= 2.36)")
    root = tmp_path / "odd-root"
    (root / "usr/bin/su").chmod(0o4755)
    (root / "usr/bin/same").hardlink_to(root / "usr/bin/su")
    (root / "usr/lib64").mkdir()
    (root / "usr/lib64/absolute").symlink_to("/usr/bin/su")
    (root / "usr/lib64/relative").symlink_to("../bin/su")
    (root / "var/empty").mkdir(parents=True)
    return packed(root, made)


def seen(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below ``root`` as kind, mode, time and bytes."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in root.rglob("*"):
        status, name = path.lstat(), path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.fspath(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", status.st_mode)
        else:
            found[name] = ("file", status.st_mode, int(status.st_mtime), status.st_nlink, path.read_bytes())
    return found


def test_it_unpacks_as_dpkg_does(tmp_path: Path, package: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    subprocess.run(["dpkg-deb", "--extract", package, one], check=True)
    tree.extract(package, other)
    assert seen(one) == seen(other)
    assert len(seen(one)) == 12
    assert tree.control(package, "Depends") == "libc6 (>= 2.36)"
    assert tree.control(package, "Recommends") == ""


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    """Two packages, one in the layout before merged-/usr and one after."""
    files = {"lib/x86_64-linux-gnu/liba.so.1": "a", "usr/bin/su": "su", "etc/a.conf": "a"}
    old = make_deb(tmp_path, "old", files, "1:1.0-1")
    root, own = tmp_path / "old-root", "/lib/x86_64-linux-gnu/liba.so.1"
    (root / "usr/bin/su").chmod(0o4755)
    for path, target in {
        "lib64/ld.so": own, "usr/lib/x86_64-linux-gnu/liba.so": own, "etc/outside": "/nowhere/else"
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    new = make_deb(tmp_path, "new", {"usr/lib/x86_64-linux-gnu/private/libb.so.2": "b"})
    (tmp_path / "new-root/lib").symlink_to("usr/lib")
    return [packed(tmp_path / "old-root", old), packed(tmp_path / "new-root", new)]


@pytest.mark.parametrize("order", [1, -1])
def test_unpacking_merges_usr_and_makes_links_relative(tmp_path: Path, packages: list[Path], order: int) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    unpack(packages[::-1] if order == 1 else packages[:1], root)
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


def test_a_damaged_package_is_refused(tmp_path: Path, package: Path) -> None:
    whole = package.read_bytes()
    for data in (b"", whole[:50], whole[:-40], whole.replace(b"data.tar.xz", b"data.tar.zz")):
        package.write_bytes(data)
        with pytest.raises(HostError, match="not a whole Debian package"):
            tree.extract(package, tmp_path)


def archived(entries: list[tarfile.TarInfo]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return out.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode, made.size = kind, to, 0o644, int(kind == tarfile.REGTYPE)
    return made


ESCAPES = {
    "upwards": [entry("./../outside")],
    "through a link": [entry("./in", tarfile.SYMTYPE, ".."), entry("./in/outside")],
    "through an absolute link": [entry("./in", tarfile.SYMTYPE, "/tmp"), entry("./in/outside")],  # noqa: S108
    "a hard link": [entry("./in", tarfile.LNKTYPE, "../../etc/passwd")],
}


@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_is_written_outside(tmp_path: Path, package: Path, name: str) -> None:
    members = {"debian-binary": b"2.0\n", "control.tar.xz": archived([]), "data.tar.xz": archived(ESCAPES[name])}
    data = b"!<arch>\n"
    for member, content in members.items():
        data += f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        data += b"\n" * (len(content) % 2)
    package.write_bytes(data)
    root = tmp_path / "deep/root"
    root.mkdir(parents=True)
    with pytest.raises(HostError, match="not a whole Debian package"):
        tree.extract(package, root)
    assert not list(tmp_path.glob("**/outside"))


def test_recipes_find_a_program_of_that_name(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_source.stand_in() is None, "this machine has its own"
    words = ["dpkg-deb", "--fsys-tarfile", str(package)]
    own = subprocess.run(words, check=True, capture_output=True).stdout
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = fetch_source.stand_in()
    assert folder is not None
    program = folder / "dpkg-deb"
    done = subprocess.run([program, *words[1:]], check=True, capture_output=True)
    assert done.stdout == own
    package.write_bytes(b"!<arch>\n")
    bad = ran([program, *words[1:]])
    assert (bad.returncode, bad.stdout) == (4, "")
    assert "not a whole Debian package" in bad.stderr
    assert "Traceback" not in bad.stderr


def pinned(package: Path, file: bytes) -> dict[str, Any]:
    return {
        "folder": "pool",
        "file": "usr/share/keyrings/debian-archive-keyring.gpg",
        "sha256": hashlib.sha256(file).hexdigest(),
        "packages": {"gone_1_all.deb": "0" * 64, package.name: hashlib.sha256(package.read_bytes()).hexdigest()},
    }


def test_keys_come_out_of_the_pinned_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    package = make_deb(tmp_path, "keys", {"usr/share/keyrings/debian-archive-keyring.gpg": "the keys"})
    archive = Archive(tmp_path / "archive", None)
    (archive.folder / "pool").mkdir(parents=True)
    served = archive.folder / "pool" / package.name
    monkeypatch.setattr(client, "table", lambda: {"debian_keys": pinned(package, b"the keys")})
    with archive.served():
        mirror = Mirror(archive.uri, None)
        with pytest.raises(HostError, match="no keys to check Debian's signatures") as caught:
            client.keyring(mirror)
        assert debian_sources.KEYRING_VARIABLE in caught.value.hint
        served.write_bytes(package.read_bytes()[:-1] + b"?")
        with pytest.raises(HostError, match="not the file that was expected"):
            client.keyring(mirror)
        served.write_bytes(package.read_bytes())
        file = client.keyring(mirror)
        assert file.read_bytes() == b"the keys"
        asked = len(archive.asked)
        assert client.keyring(mirror) == file
        assert len(archive.asked) == asked
        file.write_bytes(b"other keys")
        assert client.keyring(mirror).read_bytes() == b"the keys", "a changed file in the cache is not used"
        monkeypatch.setattr(client, "table", lambda: {"debian_keys": pinned(package, b"others")})
        with pytest.raises(HostError, match="not those that were pinned"):
            client.keyring(mirror)
    own = tmp_path / "own.gpg"
    assert client.keyring(Mirror("http://127.0.0.1:9", own)) == own, "the system's own keys come first"


DEB822 = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://third.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main
"""

LIST = """\
# deb http://commented.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb http://plain.example/debian/ bookworm main non-free # the archive
deb broken
"""


def test_the_archive_is_found_in_both_formats(tmp_path: Path) -> None:
    assert [found.uri for found in in_deb822(DEB822)] == ["http://mirror.example/debian", "http://third.example/debian"]
    assert [found.uri for found in in_list(LIST)] == ["http://plain.example/debian/"]
    write_atomic(tmp_path / "sources.list.d/debian.sources", DEB822)
    (tmp_path / "sources.list.d/old.list.disabled").write_text(LIST, encoding="utf-8")
    assert [found.uri.split("/")[2] for found in read_sources(tmp_path)] == ["mirror.example", "third.example"]
    (tmp_path / "sources.list").write_text(LIST, encoding="utf-8")
    assert next(read_sources(tmp_path)).uri == "http://plain.example/debian/", "apt's own order"


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("deb http://mirror.example/ubuntu jammy main universe", False),
        ("deb http://mirror.example/debian-security bookworm-security main", False),
        ("deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/debian bookworm main", False),
        ("deb https://vendor.example/linux/debian bookworm stable", False),
        ("deb https://vendor.example/apt bookworm main", False),
        ("deb cdrom:[Debian_12]/ bookworm main", False),
        ("deb http://mirror.example/debian bookworm-backports main", False),
        ("deb http://mirror.example/debian stable main", True),
        ("deb http://mirror.example/pub/debian/ trixie main", True),
        ("deb mirror+file:/etc/apt/mirrors/debian.list bookworm main", True),
        ("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://10.0.0.1/mirror bookworm main", True),
    ],
)
def test_what_is_the_archive(line: str, is_it: bool) -> None:
    assert bool(list(in_list(line))) is is_it


def test_without_an_archive_the_error_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_sources, "read_sources", list)
    monkeypatch.setattr(debian_sources, "TEMPLATE", tmp_path / "Debian.info")
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    with pytest.raises(HostError, match="names no mirror") as caught:
        debian_sources.find_mirror()
    assert debian_sources.VARIABLE in caught.value.hint
    keyring = tmp_path / "debian-archive-keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(debian_sources, "KEYRINGS", (keyring,))
    monkeypatch.setenv(debian_sources.VARIABLE, "http://mirror.example/debian")
    assert debian_sources.find_mirror() == Mirror("http://mirror.example/debian", keyring)
    keyring.unlink()
    assert debian_sources.find_mirror().keyring is None, "the archive's own package of keys is taken"
    monkeypatch.setenv(debian_sources.KEYRING_VARIABLE, str(keyring))
    with pytest.raises(HostError, match="not a file"):
        debian_sources.find_mirror()


def test_a_relative_of_debian_knows_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ubuntu, whose own sources are of another archive."""
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    ubuntu = "deb http://mirror.example/ubuntu noble main universe\n"
    monkeypatch.setattr(debian_sources, "read_sources", lambda: in_list(ubuntu))
    template = tmp_path / "Debian.info"
    template.write_text(
        "ChangelogURI: http://log.example/debian/%s\n\nSuite: {series}-security\nBaseURI: http://s.example/\n\n"
        "Suite: {series}\nRepositoryType: deb\nBaseURI: http://mirror.example/debian/\nComponent: main\n"
    )
    monkeypatch.setattr(debian_sources, "TEMPLATE", template)
    assert debian_sources.find_mirror().uri == "http://mirror.example/debian/"


def test_without_apt_the_error_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    monkeypatch.setattr(debian_sources, "APT", tmp_path / "etc/apt")
    monkeypatch.setattr(debian_sources, "read_sources", list)
    monkeypatch.setattr(debian_sources, "TEMPLATE", tmp_path / "Debian.info")
    assert "it has no apt" in debian.available()
    assert debian_sources.VARIABLE in debian.fix()
    with pytest.raises(HostError, match="names no mirror") as caught:
        debian.fetch("bookworm", "amd64", ["hello"])
    assert f"export {debian_sources.VARIABLE}=" in caught.value.hint


def test_apts_own_settings_are_read_and_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """#!/bin/sh\ntest "$3" = Acquire::http::Proxy && echo "found='http://apt.example:3142'"\n"""
    executable(tmp_path / "apt-config", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    debian_sources.apts_setting.cache_clear()
    assert client._proxies() == {"http": "http://apt.example:3142"}
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"http": "http://own.example"})
    assert client._proxies() == {"http": "http://own.example"}
    debian_sources.apts_setting.cache_clear()
