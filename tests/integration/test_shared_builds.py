"""What builds share: ccache's results here, through Redis and HTTP, and one Conan home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import ROOT, cache_dir
from tests.support.conan_homes import serving
from tests.support.processes import ran, reserved, wait_for, well
from toolchains.bundle import conan, conan_packages
from toolchains.compilers import ccache, zig
from toolchains.compilers.families import Compilers
from toolchains.debian import packages as debian
from toolchains.debian.tree import own_loader_argv
from toolchains.targets import get_target

pytestmark = pytest.mark.build

WORK = """\
import sys
from pathlib import Path
from toolchains.bundle import conan_packages
from toolchains.targets import get_target
log = Path(sys.argv[1])
subject = ["--requires=pthreadpool/cci.20251020"]
with conan_packages.building():
    words = conan_packages.words(get_target("linux-x86_64"), "zig", log)
    conan_packages.install(subject, words, log, "Building pthreadpool")
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    root = debian.tree("bookworm", "amd64", ["redis-server"], closure=True, name="test-redis")
    port = reserved()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    argv = [*own_loader_argv(root, "usr/bin/redis-server"), *words]
    with serving(argv, port, tmp_path):
        yield f"redis://127.0.0.1:{port}"


def compilations(cache: Path, remote: str) -> tuple[int, int]:
    """Those that were done before, and all, of a machine with nothing but compilers, which take long to fetch."""
    cache.mkdir()
    for part in ("debian", "tools", "zig", "wheels"):
        (cache / part).symlink_to(cache_dir(part).resolve())
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    env |= {"SLIPWAY_CACHE": str(cache), "SLIPWAY_CCACHE_REMOTE": remote}
    well(ran([sys.executable, "-c", WORK, cache / "log.txt"], env=env, cwd=ROOT))
    lines = [line.split() for line in (cache / "log.txt").read_text(encoding="utf-8").splitlines()]
    found = [(int(words[1]), int(words[3])) for words in lines if words[:1] == ["ccache:"]]
    return sum(hits for hits, _ in found), sum(all_ for _, all_ in found)


@pytest.mark.long  # they compile a package four times; CI: the words and variables, in tests/unit/test_native.py
def test_what_one_machine_compiled_another_takes_from_redis(redis: str, tmp_path: Path) -> None:
    hits, compiled = compilations(tmp_path / "one", redis)
    assert hits == 0
    assert compiled >= 5
    assert compilations(tmp_path / "other-machine", redis) == (compiled, compiled)


TARGET = get_target("linux-x86_64")
SOURCES = {
    "part.c": "#include <dep.h>\nint part(void) { return DEP; }\n",
    "part.cpp": "#include <string>\n#include <dep.h>\nint size() { return std::string(DEP, 'x').size(); }\n",
    "part.S": "#include <dep.h>\n.text\n.globl part\npart:\n  movl $DEP, %eax\n  ret\n",
}


@pytest.fixture(scope="module")
def compilers() -> Compilers:
    return zig.ensure(TARGET)


@pytest.fixture(autouse=True)
def emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, so that what earlier runs compiled does not count."""
    folder = tmp_path / "ccache"

    def elsewhere(*parts: str) -> Path:
        return folder if parts == ("ccache",) else cache_dir(*parts)

    monkeypatch.setattr(ccache, "cache_dir", elsewhere)


class Building:
    """A Conan home in which a package is being built that needs another one, with the names that Conan makes up."""

    def __init__(self, folder: Path, random: str, value: int = 42) -> None:
        self.folder, self.build = folder, folder / f"p/b/parts{random}/b/build"
        self.include = folder / f"p/b/depen{random[::-1]}/p/include"
        self.log = folder / "counted"
        self.build.mkdir(parents=True)
        self.include.mkdir(parents=True)
        (self.include / "dep.h").write_text(f"#define DEP {value}\n", encoding="utf-8")
        for name, text in SOURCES.items():
            (self.build.parent / name).write_text(text, encoding="utf-8")
        # What is younger than the compilation is not trusted.
        for file in (self.include / "dep.h", *self.build.parent.glob("part.*")):
            os.utime(file, (1e9, 1e9))

    def compile(self, compilers: Compilers, name: str, *flags: str) -> tuple[int, int]:
        """Compile as CMake does, in the package's build folder; hits and compilations so far."""
        launcher = ccache.variables(self.folder, compilers.key)["CMAKE_C_COMPILER_LAUNCHER"].split(";")
        compiler = compilers.cxx if name.endswith(".cpp") else compilers.cc
        words = [*launcher, compiler, "-isystem", str(self.include), f"-ffile-prefix-map={self.folder}=.", "-O2"]
        words += [*flags, "-MD", "-MT", f"{name}.o", "-MF", f"{name}.o.d", "-o", f"{name}.o"]
        words += ["-c", str(self.build.parent / name)]
        well(ran(words, cwd=self.build, env={**os.environ, **ccache.environment(self.log)}, timeout=300))
        return ccache.hits(self.log)


@pytest.mark.parametrize("name", SOURCES)
def test_a_second_compilation_elsewhere_is_a_hit(compilers: Compilers, tmp_path: Path, name: str) -> None:
    first, second = Building(tmp_path / "a", "0123456789abc"), Building(tmp_path / "b/c", "fedcba9876543")
    assert first.compile(compilers, name) == (0, 1)
    assert first.compile(compilers, name) == (1, 2)
    assert second.compile(compilers, name) == (1, 1)
    objects = [(home.build / f"{name}.o").read_bytes() for home in (first, second)]
    assert objects[0] == objects[1]
    assert os.fsencode(tmp_path) not in objects[0]


def test_what_changes_the_result_is_a_miss(compilers: Compilers, tmp_path: Path) -> None:
    import dataclasses

    assert Building(tmp_path / "a", "0123456789abc").compile(compilers, "part.c") == (0, 1)
    assert Building(tmp_path / "b", "0123456789abc").compile(compilers, "part.c", "-DOTHER") == (0, 1)
    assert Building(tmp_path / "c", "0123456789abc", value=43).compile(compilers, "part.c") == (0, 1)
    other = dataclasses.replace(compilers, key="zig-of-tomorrow")
    assert Building(tmp_path / "d", "0123456789abc").compile(other, "part.c") == (0, 1)
    assert Building(tmp_path / "e", "0123456789abc").compile(compilers, "part.c") == (1, 1)


RECIPE = """
import pathlib
import time

from conan import ConanFile


class Recipe(ConanFile):
    name = "NAME"
    version = "1.0"

    def build(self):
        pathlib.Path(r"FOLDER", "NAME-begun").touch()
        time.sleep(SECONDS)

    def package(self):
        pathlib.Path(self.package_folder, "made.txt").write_text("NAME")
"""
BUILD = """
import sys, time
from pathlib import Path
from core.files.locks import Clock
from toolchains.bundle import conan_packages
clock, log, force = Clock(), Path(sys.argv[1]), sys.argv[3:]
words = ["--profile:all=" + str(log.with_name("profile")), "--no-remote", "--lockfile="]
with conan_packages.building():
    conan_packages.install(["--requires=" + sys.argv[2]], words, log, "Building", force=force)
print(f"{time.time():.1f} {clock}")
"""


class Home:
    """A cache of the test's own, with two recipes in its Conan."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "profile").write_text("[settings]\nos=Linux\n", encoding="utf-8")
        for name, seconds in (("slow", 8), ("quick", 0)):
            recipe = folder / name
            recipe.mkdir()
            text = RECIPE.replace("NAME", name).replace("FOLDER", str(folder)).replace("SECONDS", str(seconds))
            (recipe / "conanfile.py").write_text(text, encoding="utf-8")
            conan.conan(["export", recipe], log=self.log)

    def begin(self, name: str, *force: str) -> subprocess.Popen[str]:
        """Begin to build a package in a process of its own; packages of the recipes ``force`` are built again."""
        return subprocess.Popen(
            [sys.executable, "-c", BUILD, str(self.log), f"{name}/1.0", *force],
            env={**os.environ, "PYTHONPATH": os.fspath(ROOT)}, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return Home(tmp_path)


def ended(child: subprocess.Popen[str]) -> tuple[float, str, str]:
    """When it ended, how long it took, and its messages."""
    out, messages = child.communicate(timeout=300)
    assert child.returncode == 0, messages
    when, words = out.strip().split(" ", 1)
    return float(when), words, messages


def test_builds_take_turns_and_who_builds_is_said(home: Home) -> None:
    slow, begun = home.begin("slow"), home.folder / "slow-begun"
    wait_for(begun.exists, 120, slow)
    begun.unlink()
    same, quick = home.begin("slow"), home.begin("quick")
    first, second, third = ended(slow), ended(same), ended(quick)
    assert first[0] < second[0] and first[0] < third[0]
    assert not begun.exists(), "the package is there"
    assert (home.folder / "quick-begun").exists()
    assert f"building for another process: held by process {slow.pid} (" in second[2]
    assert "after waiting" in second[1]
    ended(home.begin("slow", "slow"))
    assert begun.exists(), "it is built again"


def test_another_checkouts_newer_recipe_is_not_taken(home: Home) -> None:
    recipe, log = home.folder / "quick", home.log
    first = json.loads(conan.conan(["export", recipe, "--format=json"], log=log))["reference"]
    text = (recipe / "conanfile.py").read_text(encoding="utf-8")
    (recipe / "conanfile.py").write_text(text.replace('("quick")', '("newer")'), encoding="utf-8")
    second = json.loads(conan.conan(["export", recipe, "--format=json"], log=log))["reference"]
    assert first != second
    words = [f"--profile:all={home.folder}/profile", "--no-remote", "--lockfile="]
    conan_packages.install([f"--requires={first}"], words, log, "Building")
    listed = json.loads(conan.conan(["list", "quick/1.0#*:*", "--format=json"], log=log))
    revisions = listed["Local Cache"]["quick/1.0"]["revisions"]
    built = [revision for revision, item in revisions.items() if item.get("packages")]
    assert built == [first.partition("#")[2]]
