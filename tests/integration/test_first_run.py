"""Fresh machines: the README's first command from nothing, and the front door in a Linux without apt."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.builds import checkout
from tests.support.processes import marked, ran, wait_for, well
from toolchains.debian import packages as debian
from toolchains.debian.sources import VARIABLE, find_mirror, host_arch

COMMAND = ["deploy", "--device", "pi", "--model", "mobilenet_v2"]
MOST = {"clone/.venv": 1100, "cache": 1800}
"""MB on disk at most; what is said before a first start is about their sum."""

# CI: the parts, in unit tests (test_first.py, test_lock.py, test_debian.py) and test_inv.py, and the same command on a
# machine that is not fresh, in test_readme.py.
pytestmark = pytest.mark.long


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A folder with a clean copy of the checkout; devices that were started in it are ended."""
    checkout(tmp_path / "clone")
    yield tmp_path
    for pid in marked(str(tmp_path)):  # the virtual Pi, the warm exporter
        os.kill(pid, signal.SIGTERM)


def variables(**own: str) -> dict[str, str]:
    """For a process that has nothing of this one's environment but the way to packages."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    return {**kept, "LANG": "C.UTF-8", **own}


def start(folder: Path) -> subprocess.Popen[str]:
    env = variables(PATH="/usr/local/bin:/usr/bin:/bin", HOME=str(folder), SLIPWAY_CACHE=str(folder / "cache"))
    env["SLIPWAY_PYTHON"] = shutil.which("python3") or ""
    return subprocess.Popen(
        [str(folder / "clone" / "inv"), *COMMAND], cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def megabytes(folder: Path) -> int:
    return int(well(ran(["du", "-sm", folder])).stdout.split()[0])


def test_the_first_command_from_nothing(fresh: Path) -> None:
    said: list[str] = []
    with start(fresh) as first:
        assert first.stderr is not None
        listening = threading.Thread(target=lambda: said.extend(first.stderr or ()), daemon=True)
        listening.start()
        # The exporter is being installed, and the compilers are being fetched.
        both = ("the exporter", "preparing zig")
        wait_for(lambda: all(any(words in line for line in said) for words in both) or first.poll() is not None, 900)
        assert first.poll() is None, said
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(60) == 130, said
        listening.join()
    assert "Traceback" not in "".join(said)
    assert not marked(str(fresh)), "something goes on"
    assert not (fresh / "clone/.venv/.slipway/export.lock").exists()

    second = start(fresh)
    out, trouble = second.communicate(timeout=3000)
    assert second.returncode == 0, trouble
    assert "Traceback" not in trouble
    assert "Slipway's own packages" not in trouble, "they were there"
    for name in ("Egyptian cat", "tiger cat", "tabby", "lynx", "plastic bag"):
        assert name in out, out
    assert "agrees" in out
    for name, most in MOST.items():
        assert megabytes(fresh / name) <= most


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
    env = variables(HOME="/home", PATH="/usr/sbin:/usr/bin:/sbin:/bin", SLIPWAY_VENV="/home/venv", **more)
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    return ran([*unshared, "sh", "-c", ENTER, "sh", root, ROOT, home, root, *words], env=env, timeout=600)


def test_without_apt_the_front_door_says_what_to_set_and_then_works(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    without = run(root, home, ["/slipway/inv", "doctor"])
    assert without.returncode == 4, without.stderr
    assert "it has no apt" in without.stderr
    assert f"Try: export {VARIABLE}=" in without.stderr
    assert "Traceback" not in without.stderr
    mirror = {VARIABLE: find_mirror().uri}
    done = well(run(root, home, ["/slipway/inv", "doctor"], **mirror))
    assert "signatures checked" in done.stdout
    for library in root.glob("usr/lib/*/libstdc++.so.6"):
        library.rename(library.with_name("gone"))
    bare = run(root, home, ["/slipway/inv", "doctor"], **mirror)
    assert bare.returncode == 4 and "Try: install libstdc++.so.6 with your distribution's packages" in bare.stderr
    for library in root.glob("usr/lib/*/gone"):
        library.rename(library.with_name("libstdc++.so.6"))
    fetched = well(run(root, home, ["/home/venv/bin/python", "-c", FETCH], PYTHONPATH="/slipway", **mirror))
    tree = home / fetched.stdout.strip().removeprefix("/home/")
    assert (tree / "usr/bin/hello").read_bytes()[:5] == b"\x7fELF\x02"
    assert list((home / ".cache/slipway/debian/keys").glob("*.gpg")), "the archive's own keys"
