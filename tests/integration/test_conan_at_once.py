"""Several builds in one Conan home at once: a quick one does not wait for a slow one's package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.paths import ROOT
from toolchains.bundle import conan, conan_packages

pytestmark = pytest.mark.build

SLOW_S = 25
RECIPE = """
import pathlib
import time

from conan import ConanFile


class Recipe(ConanFile):
    name = "NAME"
    version = "1.0"
    settings = "os"
    options = {"flavour": ["a", "b"]}
    default_options = {"flavour": "a"}

    def source(self):
        pathlib.Path("source.txt").write_text("sources")

    def build(self):
        pathlib.Path(r"FOLDER", f"NAME-{self.options.flavour}-begun").touch()
        time.sleep(SECONDS)
        assert pathlib.Path(self.source_folder, "source.txt").is_file()

    def package(self):
        pathlib.Path(self.package_folder, "made.txt").write_text(f"NAME {self.options.flavour}")
"""
BUILD = """
import sys, time
from pathlib import Path
from core.files.locks import Clock, waited
from toolchains.bundle import conan_packages
begun, clock = time.monotonic(), Clock()
words = ["--profile:all=" + sys.argv[1], "--no-remote", "--lockfile=", "--options=" + sys.argv[3]]
log, force = Path(sys.argv[4]), sys.argv[5:]
request = conan_packages.Request(["--requires=" + sys.argv[2]], words, log, "Building", force)
conan_packages.again(lambda: request, "debian", log) if force else conan_packages.prepare(request)
print(f"{time.time():.1f} {waited():.1f} {clock}")
"""


class Home:
    """A cache of the test's own, with two recipes in its Conan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: list[subprocess.Popen[str]] = []
        self.profile = folder / "profile"
        self.profile.write_text("[settings]\nos=Linux\n", encoding="utf-8")
        for name, seconds in (("slow", SLOW_S), ("quick", 0)):
            recipe = folder / name
            recipe.mkdir()
            text = RECIPE.replace("NAME", name).replace("FOLDER", str(folder)).replace("SECONDS", str(seconds))
            (recipe / "conanfile.py").write_text(text, encoding="utf-8")
            conan.conan(["export", recipe], log=folder / "log")

    def begin(self, name: str, flavour: str = "a", *force: str) -> subprocess.Popen[str]:
        """Begin to build a package in a process of its own; packages of the recipes ``force`` are built again."""
        words = [str(self.profile), f"{name}/1.0", f"{name}/*:flavour={flavour}"]
        child = subprocess.Popen(
            [sys.executable, "-c", BUILD, *words, str(self.folder / f"{name}-{flavour}.log"), *force],
            env={**os.environ, "PYTHONPATH": os.fspath(ROOT)}, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._begun.append(child)
        return child

    def wait_for(self, mark: str) -> None:
        limit = time.monotonic() + 120
        while not (self.folder / mark).exists():
            for child in self._begun:
                assert child.poll() in (None, 0), child.communicate()
            assert time.monotonic() < limit, mark
            time.sleep(0.1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return Home(tmp_path)


def ended(child: subprocess.Popen[str]) -> tuple[float, float, str, str]:
    """When it ended, how long it waited, what it says of both, and its messages."""
    out, messages = child.communicate(timeout=300)
    assert child.returncode == 0, messages
    when, waited, words = out.strip().split(" ", 2)
    return float(when), float(waited), words, messages


def test_a_quick_build_does_not_wait_for_a_slow_one_but_a_replaced_package_does(home: Home) -> None:
    slow = home.begin("slow")
    home.wait_for("slow-a-begun")
    quick = ended(home.begin("quick"))
    other = home.begin("slow", "b")  # of the same recipe: its sources are there, its package is another one
    home.wait_for("slow-b-begun")
    (home.folder / "quick-a-begun").unlink()
    replaced = home.begin("quick", "a", "quick")  # the others may compile with it
    assert slow.poll() is None
    assert quick[1] < SLOW_S / 2
    first, second = ended(slow), ended(other)
    assert quick[0] < first[0] < second[0]
    last = ended(replaced)
    assert second[0] < last[0]
    assert f"packages that are to be built again: held by process {slow.pid} (" in last[3]
    assert f"; process {other.pid} (" in last[3]
    assert (home.folder / "quick-a-begun").exists()


def test_the_same_package_is_built_once_and_who_builds_it_is_said(home: Home) -> None:
    slow = home.begin("slow")
    home.wait_for("slow-a-begun")
    (home.folder / "slow-a-begun").unlink()
    again = ended(home.begin("slow"))
    assert not (home.folder / "slow-a-begun").exists()
    assert again[1] > 1
    assert f"slow is being built already: held by process {slow.pid} (" in again[3]
    assert "after waiting" in again[2]
    ended(slow)


def test_another_checkouts_newer_recipe_is_not_taken(home: Home) -> None:
    recipe = home.folder / "quick"
    log = home.folder / "log"
    first = json.loads(conan.conan(["export", recipe, "--format=json"], log=log))["reference"]
    text = (recipe / "conanfile.py").read_text(encoding="utf-8")
    (recipe / "conanfile.py").write_text(text.replace('f"quick ', 'f"newer '), encoding="utf-8")
    second = json.loads(conan.conan(["export", recipe, "--format=json"], log=log))["reference"]
    assert first != second
    words = [f"--profile:all={home.profile}", "--no-remote", "--lockfile="]
    conan_packages.prepare(conan_packages.Request([f"--requires={first}"], words, log, "Building"))
    listed = json.loads(conan.conan(["list", "quick/1.0#*:*", "--format=json"], log=log))
    revisions = listed["Local Cache"]["quick/1.0"]["revisions"]
    built = [revision for revision, item in revisions.items() if item.get("packages")]
    assert built == [first.partition("#")[2]]
