"""The wrapper on a fresh machine: from nothing, twice at once, interrupted, without Python, network or space."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import executable, marked, ran, wait_for, well

NEEDED = ("inv", "tasks.py", "pyproject.toml", "locks", "commands", "core", "deploy", "verify")


def _clone(folder: Path) -> Path:
    folder.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the wrapper needs of a checkout, with no environment in it."""
    return _clone(tmp_path / "clone")


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, which keeps the environment that a test made in it: each costs half a minute."""
    return _clone(tmp_path_factory.mktemp("lived-in") / "clone")


def _inv(clone: Path, *words: str, prefix: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    return ran([*prefix, str(clone / "inv"), *words], env={**os.environ, **env}, timeout=300)


def _begin(clone: Path) -> subprocess.Popen[str]:
    argv = [str(clone / "inv"), "--list"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_from_nothing_interrupted_then_two_at_once(lived_in: Path) -> None:
    clone = lived_in
    first = _begin(clone)
    python = str(clone / ".venv" / "bin" / "python")
    pip = [python, "-I", "-u", "-m", "pip", "install"]
    wait_for(lambda: pip in [argv[: len(pip)] for argv in marked(python).values()], 120, first)
    os.killpg(first.pid, signal.SIGINT)  # a terminal sends Ctrl-C to the whole group
    _, trouble = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "Interrupted" in trouble
    assert not marked(python), "pip outlived the interrupted wrapper"
    assert not (clone / ".venv" / ".slipway" / "core.lock").exists()

    both = [_begin(clone) for _ in range(2)]
    results = [child.communicate(timeout=300) for child in both]
    assert [child.returncode for child in both] == [0, 0], results
    for out, _ in results:
        assert "deploy" in out
    assert sum("Installing" in trouble for _, trouble in results) == 1, "the packages were installed twice"

    assert well(_inv(clone, "--list")).stderr == "", "a warm start has nothing to say"


def test_without_a_usable_python(clone: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "cmp", "env"):
        (tools / name).symlink_to(shutil.which(name) or "")
    executable(tools / "python3", '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.7.3\nexit 1\n')
    done = _inv(clone, "--list", PATH=str(tools))
    assert done.returncode == 4
    assert "needs Python 3.10" in done.stderr
    assert "Python 3.7.3" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / ".venv").exists()


def test_without_network(clone: Path) -> None:
    # A network namespace without interfaces: as on a train.
    done = _inv(clone, "--list", prefix=("unshare", "--map-root-user", "--net"), PIP_RETRIES="1", PIP_NO_CACHE_DIR="1")
    assert done.returncode == 4, done.stderr
    assert "Could not reach the Python package index" in done.stderr
    assert "Try:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / ".venv" / ".slipway" / "core.lock").exists()


def test_with_a_full_disk(clone: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    script = 'mount -t tmpfs -o size=24m none "$0" && SLIPWAY_VENV="$0/.venv" exec "$1" --list'
    done = ran(["unshare", "--map-root-user", "--mount", "sh", "-c", script, small, clone / "inv"], timeout=300)
    assert done.returncode == 4, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_environment_is_made_again(lived_in: Path) -> None:
    assert _inv(lived_in, "--version").returncode == 0  # nothing to do after the first test here; alone it makes one
    (lived_in / ".venv" / "bin" / "python").unlink()
    assert well(_inv(lived_in, "--version")).stdout.startswith("Slipway ")


def test_a_debian_python_without_venv_support(clone: Path) -> None:
    # As on a fresh Debian: python3 is there, python3-venv (ensurepip) and apt's lists of packages are not.
    script = (
        "mount -t tmpfs none /usr/lib/python3.11/ensurepip && mount -t tmpfs none /var/lib/apt/lists && "
        'SLIPWAY_PYTHON=/usr/bin/python3 exec "$0" --version'
    )
    done = well(ran(["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(clone / "inv")], timeout=300))
    assert done.stdout.startswith("Slipway ")
