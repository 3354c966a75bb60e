"""Debian's packages and the emulators against the real archive."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import quickest, ran, well
from toolchains.debian import packages as debian
from toolchains.debian import sources as debian_sources
from toolchains.debian.client import keyring
from toolchains.debian.reader import Reader
from toolchains.debian.sources import find_mirror

FETCH = "import sys; from toolchains.debian import packages; packages.fetch('bookworm', 'armhf', ['hello'])"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def leftovers(cache: Path) -> list[str]:
    return [str(path) for path in cache.rglob("*") if path.name.startswith(".") and "locks" not in path.parts]


def test_from_nothing_and_then_without_a_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert debian.available() == ""
    root = debian.tree("bookworm", "armhf", ["hello"])
    assert (root / "usr/bin/hello").read_bytes()[:5] == b"\x7fELF\x01"
    assert list(debian.versions(root)) == ["hello"]
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert debian.tree("bookworm", "armhf", ["hello"]) == root
    assert [file.name.split("_")[0] for file in debian.fetch("bookworm", "armhf", ["hello"])] == ["hello"]
    assert quickest(lambda: [ask("bookworm", "armhf", ["hello"]) for ask in (debian.tree, debian.fetch)]) < 1
    # A plan needs no network either: the lists are here.
    names = [item.name for item in Reader("bookworm", "armhf").plan(["hello"], closure=True)]
    assert {name.split("_")[0] for name in names} >= {"hello", "libc6", "libgcc-s1"}
    assert leftovers(cache / "debian/bookworm-armhf/pool") == []


def test_ctrl_c_leaves_nothing_half_done(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the request and never answers
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "http_proxy": proxy, "https_proxy": proxy}
        argv = [sys.executable, "-c", FETCH]
        with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE) as child:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                child.send_signal(signal.SIGINT)
                assert child.wait(60) != 0
    assert leftovers(cache) == []
    assert debian.fetch("bookworm", "armhf", ["hello"]), "the same request works afterwards"


def apts_choice(folder: Path, arch: str, packages: list[str]) -> set[str]:
    """The files that this machine's apt would fetch for an empty system of another architecture."""
    mirror = find_mirror()
    for part in ("lists/partial", "cache/archives/partial", "state", "sources.d"):
        (folder / part).mkdir(parents=True)
    (folder / "state/status").touch()
    (folder / "sources.d/debian.sources").write_text(
        f"Types: deb\nURIs: {mirror.uri}\nSuites: bookworm\nComponents: main\nArchitectures: {arch}\n"
        f"Signed-By: {keyring(mirror)}\n"
    )
    settings = {
        "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{folder}/sources.d",
        "Dir::State": f"{folder}/state", "Dir::State::lists": f"{folder}/lists",
        "Dir::State::status": f"{folder}/state/status", "Dir::Cache": f"{folder}/cache",
        "APT::Architecture": arch, "APT::Architectures": arch, "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root", "Debug::NoLocking": "true",
    }  # fmt: skip
    words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    well(ran(["apt-get", "-q", *words, "update"], timeout=300))
    said = well(ran(["apt-get", "-q", *words, "install", "--yes", "--print-uris", *packages], timeout=300)).stdout
    return set(re.findall(r"^'[^']+' (\S+) ", said, re.MULTILINE))


def test_the_files_are_those_that_apt_would_fetch(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own mirror, read by apt and by Slipway, which gets Debian's keys from there, too."""
    wanted = ["hello", "python3-numpy"]
    by_apt = apts_choice(tmp_path / "apt", "armhf", wanted)
    monkeypatch.setenv(debian_sources.VARIABLE, find_mirror().uri)
    monkeypatch.setattr(debian_sources, "KEYRINGS", ())
    monkeypatch.delenv(debian_sources.KEYRING_VARIABLE, raising=False)
    debian.fetch("bookworm", "armhf", ["hello"])
    assert list((cache / "debian/keys").glob("*.gpg"))
    assert len(by_apt) > 40
    assert {item.name for item in Reader("bookworm", "armhf").plan(wanted, closure=True)} == by_apt
