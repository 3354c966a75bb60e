"""Builds shared by machines: ccache's results through Redis and HTTP, packages through a Conan server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import ROOT, cache_dir
from tests.support.conan_homes import PASSWORD, USER, server, serving
from tests.support.processes import ran, reserved
from toolchains.debian import packages as debian
from toolchains.debian.tree import own_loader_argv

# Compiles a package of the recipes four times, each time with Conan's home empty. tests/unit/test_shared.py has the
# words and variables that this is made of.
pytestmark = [pytest.mark.build, pytest.mark.long]

WORK = """\
import sys
from pathlib import Path
from toolchains.bundle import conan_packages
from toolchains.targets import get_target
log = Path(sys.argv[1])
words = conan_packages.words(get_target("linux-x86_64"), "zig", log)
subject = ["--requires=pthreadpool/cci.20251020"]
conan_packages.prepare(conan_packages.Request(subject, words, log, "Building pthreadpool"))
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    root = debian.tree("bookworm", "amd64", ["redis-server"], closure=True, name="test-redis")
    port = reserved()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    argv = [*own_loader_argv(root, "usr/bin/redis-server"), *words]
    with serving(argv, port, tmp_path):
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture
def conan_server(tmp_path: Path) -> Iterator[str]:
    with server(tmp_path / "server") as url:
        yield url


class Machine:
    """A machine with an empty Conan and an empty ccache, and with the compilers, which take long to fetch."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.cache = folder
        for part in ("debian", "tools", "zig", "wheels"):
            folder.mkdir(exist_ok=True)
            (folder / part).symlink_to(cache_dir(part).resolve())
        self.variables = {**variables, "SLIPWAY_CACHE": str(folder), "PYTHONPATH": str(ROOT)}

    def build(self) -> str:
        """Have the package; Conan's messages."""
        log = self.cache / "log.txt"
        env = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
        done = ran([sys.executable, "-c", WORK, str(log)], env={**env, **self.variables}, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return log.read_text(encoding="utf-8")


def reused(said: str) -> tuple[int, int]:
    """Compilations that were done before, and all."""
    lines = [line for line in said.splitlines() if line.startswith("ccache: ")]
    found = [(int(words[1]), int(words[3])) for words in (line.split() for line in lines)]
    return sum(hits for hits, _ in found), sum(all_ for _, all_ in found)


def test_what_one_machine_compiled_another_takes_from_redis(redis: str, tmp_path: Path) -> None:
    hits, compiled = reused(Machine(tmp_path / "one", SLIPWAY_CCACHE_REMOTE=redis).build())
    assert hits == 0
    assert compiled >= 5
    assert reused(Machine(tmp_path / "other-machine", SLIPWAY_CCACHE_REMOTE=redis).build()) == (compiled, compiled)


def test_packages_come_from_a_conan_server(conan_server: str, tmp_path: Path) -> None:
    login = {"CONAN_LOGIN_USERNAME": USER, "CONAN_PASSWORD": PASSWORD}
    one = Machine(
        tmp_path / "one", SLIPWAY_CONAN_REMOTE=conan_server, SLIPWAY_CONAN_UPLOAD="on", SLIPWAY_CCACHE="off", **login
    )
    said = one.build()
    assert "Building from source pthreadpool/" in said
    other = Machine(tmp_path / "other-machine", SLIPWAY_CONAN_REMOTE=conan_server, SLIPWAY_CCACHE="off")
    said = other.build()
    assert "Building from source" not in said
    argv = [sys.executable, "-m", "conans.conan", "list", "pthreadpool/*:*", "-r=slipway-shared", "--format=json"]
    env = {**os.environ, "CONAN_HOME": str(other.cache / "conan")}
    listed = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    assert '"packages"' in listed
