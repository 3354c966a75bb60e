"""The Debian clients and the emulators against the real archive."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import HostError
from core.files import sealed
from core.paths import ROOT
from tests.support.processes import ended
from tests.support.timing import quickest
from toolchains.debian import apt as debian_apt
from toolchains.debian import deb as debian_deb
from toolchains.debian import packages as debian
from toolchains.debian import sources as debian_sources
from toolchains.debian.reader import Reader
from toolchains.debian.sources import find_mirror
from toolchains.emulation import emulators
from toolchains.targets import get_target

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
    names = [item.name for item in debian_apt.Apt("bookworm", "armhf").plan(["hello"], closure=True)]
    assert {name.split("_")[0] for name in names} >= {"hello", "libc6", "libgcc-s1"}
    assert all(item.sha256 for item in debian_apt.Apt("bookworm", "armhf").plan(["hello"], closure=True))
    assert leftovers(cache / "debian/bookworm-armhf/pool") == []


def test_without_a_network_the_error_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(HostError) as caught:
        debian.fetch("bookworm", "armhf", ["hello"])
    assert "check the network" in caught.value.hint
    assert "127.0.0.1:9" in caught.value.cause


def test_ctrl_c_ends_apt_and_leaves_nothing_half_done(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the request and never answers
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "http_proxy": proxy, "https_proxy": proxy}
        with subprocess.Popen(
            [sys.executable, "-c", FETCH], cwd=ROOT, env=environment, stderr=subprocess.PIPE
        ) as child:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                child.send_signal(signal.SIGINT)
                assert child.wait(60) != 0
    config = str(cache / "debian/bookworm-armhf/apt.conf").encode()
    assert ended(lambda: [one for one in Path("/proc").glob("[0-9]*") if config in _read(one / "environ")])
    assert leftovers(cache) == []
    # And the same request works afterwards.
    assert debian.fetch("bookworm", "armhf", ["hello"])


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_without_apt_the_same_files_come(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own mirror, read by apt and by Slipway itself, which gets Debian's keys from there, too."""
    wanted = ["hello", "python3-numpy"]
    debian.fetch("bookworm", "armhf", ["hello"])
    by_apt = debian_apt.Apt("bookworm", "armhf").plan(wanted, closure=True)
    tree = debian.tree("bookworm", "armhf", ["hello"])
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(debian, "missing_programs", lambda: ["apt-get"])
    monkeypatch.setattr(debian_deb, "_dpkg", lambda: False)
    monkeypatch.setattr(debian_sources, "KEYRINGS", ())
    monkeypatch.setenv(debian_sources.VARIABLE, find_mirror().uris[0])
    monkeypatch.delenv(debian_sources.KEYRING_VARIABLE, raising=False)
    other = debian.tree("bookworm", "armhf", ["hello"])
    assert sealed.contents(other) == sealed.contents(tree)
    assert list((tmp_path / "other/debian/keys").glob("*.gpg"))
    by_us = Reader("bookworm", "armhf").plan(wanted, closure=True)
    assert len(by_apt) > 40
    assert {(item.name, item.size, item.sha256) for item in by_us} == {
        (item.name, item.size, item.sha256) for item in by_apt
    }


def test_what_is_not_there_is_said(cache: Path) -> None:
    with pytest.raises(HostError, match="no-such-package") as caught:
        debian.fetch("bookworm", "armhf", ["no-such-package"])
    assert "mirror" in caught.value.hint
    with pytest.raises(HostError, match="no-such-suite"):
        debian.fetch("no-such-suite", "armhf", ["hello"])


def test_a_tarball_is_pinned(cache: Path) -> None:
    name = "fxdiv_0.0~git20200417.b408327.orig.tar.xz"
    digest = "7953482badaf4cb34026c3487c257b8e4ab2df061c019bd6fabbbc12ad52c44b"
    file = debian.source("forky", "fxdiv", name, digest)
    assert file.name == name
    with pytest.raises(HostError, match="not the file that was pinned"):
        debian.source("forky", "fxdiv", name, "0" * 64)
    with pytest.raises(HostError, match="no longer has"):
        debian.source("forky", "fxdiv", "fxdiv_1.orig.tar.xz", digest)
    assert leftovers(cache) == []


@pytest.mark.parametrize("cpu", ["", "cortex-a72", "max"])
def test_programs_of_another_machine_run(cpu: str) -> None:
    target = get_target("linux-arm64")
    root = debian.tree("bookworm", "arm64", ["hello", "libc6"])
    argv = emulators.user_argv(target, cpu, root)
    done = subprocess.run([*argv, root / "usr/bin/hello"], capture_output=True, text=True, check=True)
    assert done.stdout == "Hello, world!\n"
