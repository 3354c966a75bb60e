"""The front door in a Linux without apt, dpkg and Debian's keys: a root of its own, not only another PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran
from toolchains.debian import packages as debian
from toolchains.debian.sources import VARIABLE, find_mirror, host_arch

PACKAGES = [
    "python3", "python3-venv", "ca-certificates", "coreutils", "dash", "diffutils", "grep", "sed", "libc-bin",
    "libstdc++6",
]  # fmt: skip
ENTER = """
mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" &&
mount --bind "$2" "$1/slipway" && mount --bind "$3" "$1/home" && shift 3 && exec chroot "$@"
"""
FETCH = "from toolchains.debian import packages as d; print(d.tree('bookworm', 'arm64', ['hello'], closure=True))"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Debian's Python and little else, as another distribution would have it."""
    made = tmp_path / "root"
    shutil.copytree(debian.tree("bookworm", host_arch(), PACKAGES, closure=True, name="test-bare"), made, symlinks=True)
    for pattern in ("usr/bin/apt*", "usr/bin/dpkg*", "usr/share/keyrings", "etc/apt", "usr/lib/apt", "var/lib/dpkg"):
        for found in made.glob(pattern):
            shutil.rmtree(found) if found.is_dir() and not found.is_symlink() else found.unlink()
    for name in ("dev", "proc", "tmp", "slipway", "home", "etc/ssl/certs"):
        (made / name).mkdir(parents=True, exist_ok=True)
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copyfile(name, made / name.lstrip("/"))
    (made / "etc/passwd").write_text("root:x:0:0::/home:/bin/sh\n")
    return made


def run(root: Path, home: Path, words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    env = {
        **kept,
        "HOME": "/home",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SLIPWAY_VENV": "/home/venv",
        "LANG": "C.UTF-8",
        **more,
    }
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    return ran([*unshared, "sh", "-c", ENTER, "sh", root, ROOT, home, root, *words], env=env, timeout=600)


@pytest.mark.long  # CI: the reader in tests/unit/test_debian.py, and on the real archive in test_debian.py
def test_without_apt_the_front_door_says_what_to_set_and_then_works(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    without = run(root, home, ["/slipway/inv", "doctor"])
    assert without.returncode == 4, without.stderr
    assert "it has no apt" in without.stderr
    assert f"Try: export {VARIABLE}=" in without.stderr
    assert "Traceback" not in without.stderr
    mirror = {VARIABLE: find_mirror().uris[0]}
    done = run(root, home, ["/slipway/inv", "doctor"], **mirror)
    assert done.returncode == 0, done.stderr
    assert "signatures checked" in done.stdout
    for library in root.glob("usr/lib/*/libstdc++.so.6"):
        library.rename(library.with_name("gone"))
    bare = run(root, home, ["/slipway/inv", "doctor"], **mirror)
    assert bare.returncode == 4 and "Try: install libstdc++.so.6 with your distribution's packages" in bare.stderr
    for library in root.glob("usr/lib/*/gone"):
        library.rename(library.with_name("libstdc++.so.6"))
    fetched = run(root, home, ["/home/venv/bin/python", "-c", FETCH], PYTHONPATH="/slipway", **mirror)
    assert fetched.returncode == 0, fetched.stderr
    tree = home / fetched.stdout.strip().removeprefix("/home/")
    assert (tree / "usr/bin/hello").read_bytes()[:5] == b"\x7fELF\x02"
    assert list((home / ".cache/slipway/debian/keys").glob("*.gpg")), "the archive's own keys"
