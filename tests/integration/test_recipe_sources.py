"""Where recipes get their sources: Debian's archive or git, pinned; and nothing else touches the network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran
from toolchains.debian import fetch_source
from toolchains.debian import packages as debian

pytestmark = pytest.mark.build

RECIPES = ROOT / "recipes"
VERSION = "cci.20200417"
PINNED = "b408327ac2a15ec3e43352421954f5b1967701d1"
PROFILE = """\
[settings]
os=Linux
arch=x86_64
build_type=Release
compiler=clang
compiler.version=22
compiler.libcxx=libc++
[conf]
user.slipway:fetch={fetch}
"""


class Conan:
    """Conan with a home of its own, and a recipe of FXdiv that may be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = folder / "fxdiv"
        shutil.copytree(RECIPES / "fxdiv" / "all", self.recipe)
        self.profile = folder / "profile"
        self.profile.write_text(PROFILE.format(fetch=json.dumps(fetch_source.command())), encoding="utf-8")
        self("export", str(RECIPES / "slipway_sources" / "all"), "--version=1.0").check_returncode()

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "CONAN_HOME": str(self.folder / "home"), "NO_COLOR": "1"}
        argv = [sys.executable, "-m", "conans.conan", *words]
        return ran(argv, env=env)

    def create(self, *confs: str) -> subprocess.CompletedProcess[str]:
        """``conan create`` of the recipe; everything it says is in stderr."""
        words = [f"--conf={conf}" for conf in confs]
        return self(
            "create", str(self.recipe), f"--version={VERSION}", "--no-remote", f"--profile:all={self.profile}",
            "--build=missing", "--format=json", *words,
        )  # fmt: skip

    def pin(self, commit: str, before: str = PINNED) -> None:
        data = self.recipe / "conandata.yml"
        data.write_text(data.read_text(encoding="utf-8").replace(before, commit), encoding="utf-8")


def package(done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["graph"]["nodes"].values()
    return Path(next(node["package_folder"] for node in nodes if node["name"] == "fxdiv"))


def record(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "licenses" / "source.json").read_text(encoding="utf-8"))
    return found


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def conan(tmp_path: Path) -> Conan:
    return Conan(tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits of the real FXdiv's header, the second one changed."""
    folder = tmp_path / "FXdiv.git"
    (folder / "include").mkdir(parents=True)
    tarball = debian.source(
        "forky", "fxdiv", "fxdiv_0.0~git20200417.b408327.orig.tar.xz",
        "7953482badaf4cb34026c3487c257b8e4ab2df061c019bd6fabbbc12ad52c44b",
    )  # fmt: skip
    shutil.unpack_archive(tarball, tmp_path / "unpacked")
    (root,) = (tmp_path / "unpacked").iterdir()
    shutil.copy(root / "include" / "fxdiv.h", folder / "include")
    shutil.copy(root / "LICENSE", folder)
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "include" / "fxdiv.h").write_text("#error not this one\n", encoding="utf-8")
    git(folder, "commit", "--quiet", "-a", "-m", "second")
    return folder


def test_git_gives_the_pinned_commit_and_no_later_one(conan: Conan, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD~1")
    conan.pin(first)
    url = f"user.slipway:git_url.fxdiv={repository.as_uri()}"
    folder = package(conan.create("user.slipway:sources=git", url))
    assert "fxdiv_init_uint32_t" in (folder / "include" / "fxdiv.h").read_text(encoding="utf-8")
    assert (folder / "licenses" / "LICENSE").is_file()
    assert record(folder) == {"place": "git", "url": repository.as_uri(), "commit": first}


def test_what_git_cannot_give_is_told(conan: Conan, repository: Path) -> None:
    before = PINNED
    for pin, place, said in (
        (PINNED, repository, f"has no commit {PINNED}"),
        ("main", repository, "has no commit main"),  # what a name means can change: only a commit's digest is taken
        (PINNED, repository.with_name("gone.git"), f"{repository.with_name('gone.git').as_uri()} could not be fetched"),
    ):
        conan.pin(pin, before)
        before = pin
        done = conan.create("user.slipway:sources=git", f"user.slipway:git_url.fxdiv={place.as_uri()}")
        assert done.returncode != 0
        assert said in done.stderr


def test_what_debian_cannot_give_is_told(conan: Conan, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.tar.xz"
    wrong.write_bytes(b"something else")
    for command, said in (
        ([], 'set user.slipway:fetch=["COMMAND", ...]'),
        ([sys.executable, "-c", "import sys; sys.exit('the archive is closed')"], "fetched:\nthe archive is closed"),
        ([sys.executable, "-c", f"print({str(wrong)!r})"], "is not the file that was pinned: its sha256 is "),
        (["/nowhere/at/all"], "names a command that cannot be run"),
    ):
        conan.profile.write_text(PROFILE.format(fetch=json.dumps(command)), encoding="utf-8")
        done = conan.create("user.slipway:sources=debian")
        assert done.returncode != 0
        assert said in done.stderr
        assert command or ".orig.tar.xz comes from the package fxdiv of Debian" in done.stderr


def test_auto_is_debian_where_the_profile_knows_a_way(conan: Conan) -> None:
    found = record(package(conan.create()))
    assert (found["place"], found["package"]) == ("debian", "fxdiv")
    assert len(found["sha256"]) == 64


def test_a_changed_mind_is_not_served_from_the_old_place(conan: Conan, repository: Path) -> None:
    conan.pin(git(repository, "rev-parse", "HEAD~1"))
    first = package(conan.create("user.slipway:sources=debian"))
    wanted = ("user.slipway:sources=git", f"user.slipway:git_url.fxdiv={repository.as_uri()}")
    done = conan.create(*wanted)
    assert done.returncode != 0
    assert "the sources in Conan's cache came from debian" in done.stderr
    conan("cache", "clean", "fxdiv/*", "--source").check_returncode()
    second = package(conan.create(*wanted))
    assert second != first
    assert record(second)["place"] == "git"


def test_only_a_rebuild_takes_the_place_of_a_pinned_package(conan: Conan, repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: fxdiv\nVersion: 1.0-2\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: one\n"
    )
    (root / "DEBIAN" / "control").write_text(control, encoding="utf-8")
    shutil.copytree(repository, root / "fxdiv", ignore=shutil.ignore_patterns(".git"))
    subprocess.run(["dpkg-deb", "--build", root, tmp_path / "built.deb"], check=True, capture_output=True)
    pins = {"suite": "forky", "package": "fxdiv", "file": "fxdiv_1.0-2+deb13u1_all.deb", "sha256": "0" * 64}
    data = conan.recipe / "conandata.yml"
    data.write_text(json.dumps({"sources": {VERSION: {"debian": pins}}}), encoding="utf-8")
    for came, taken in (
        ("fxdiv_1.0-3_all.deb", False),
        ("fxdiv_1.0-2_amd64.deb", False),
        ("fxdiv_1.0-2_all.deb", True),
        ("fxdiv_1.0-2+deb13u2+b1_all.deb", True),
    ):
        shutil.copy(tmp_path / "built.deb", tmp_path / came)
        conan("remove", "--confirm", "fxdiv/*")
        done = conan.create(f"user.slipway:fetch={json.dumps(['sh', '-c', f'echo {tmp_path / came}'])}")
        if taken:
            assert (package(done) / "include" / "fxdiv.h").is_file()
            assert f"{pins['file']} is gone from the archive: {came} took its place" in done.stderr
        else:
            assert done.returncode != 0
            assert f"{came} came, which is not a rebuild" in done.stderr
