"""The recipes, each by its own test package; and their sources: Debian's archive or git, pinned, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.files import locked
from core.paths import ROOT
from tests.support.processes import ran, well
from toolchains.bundle import conan as bundled
from toolchains.bundle import conan_packages
from toolchains.compilers.libstdcxx import sysroot
from toolchains.debian import fetch_source
from toolchains.debian import packages as debian
from toolchains.emulation import emulators
from toolchains.targets import get_target
from verify.suite import shared

pytestmark = pytest.mark.build

SAID = {
    "fxdiv/cci.20200417": "fxdiv: 63 divisions, 0 wrong",
    "pthreadpool/cci.20251020": "pthreadpool: four threads, every index once",
    "cpuinfo/cci.20250905": "cpuinfo: ",
    "xnnpack/cci.20241108": "xnnpack: four rows through a layer",
}
RECIPES = ROOT / "recipes"
TESTS = RECIPES / "slipway_sources" / "test_package"
FLATBUFFERS = "23.5.26"


def run_conan(words: Sequence[str | Path], target_name: str, folder: Path, *more: str) -> str:
    """Conan with a target's profile, its test package built in ``folder``; what it and the program said."""
    log = folder / "conan.log"
    with locked(bundled.LOCK):
        common = [*conan_packages.words(get_target(target_name), "", log, "" if more else "debian"), *more]
        common += [f"--conf=tools.cmake.cmake_layout:test_folder={folder}"]
        common += ["--conf=tools.cmake.cmaketoolchain:user_presets="]
        bundled.conan([*words, *common], log=log)
    return log.read_text(encoding="utf-8")


def run_test_package(reference: str, target_name: str, folder: Path) -> str:
    return run_conan(["test", TESTS, reference], target_name, folder)


def create(name: str, version: str, target_name: str, folder: Path) -> str:
    """``conan create`` with the test package."""
    words: list[str | Path] = ["create", RECIPES / name / "all", f"--version={version}", f"--test-folder={TESTS}"]
    return run_conan(words, target_name, folder, "--build=missing")


@pytest.mark.parametrize("reference", SAID)
def test_it_does_what_it_is_for(reference: str, tmp_path: Path) -> None:
    shared.native("linux-x86_64")
    said = run_test_package(reference, "linux-x86_64", tmp_path)
    assert any(line.startswith(SAID[reference]) for line in said.splitlines())


def test_kleidiai_quantizes_on_an_emulated_cpu(tmp_path: Path) -> None:
    shared.native("linux-arm64")
    run_test_package("kleidiai/1.32.0", "linux-arm64", tmp_path)
    (program,) = (file for file in tmp_path.rglob("test_package") if file.is_file())
    target = get_target("linux-arm64")
    done = ran([*emulators.user_argv(target, sysroot=sysroot(target)), str(program)], timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "kleidiai: 32 numbers quantized, 0 wrong"), done.stderr


def test_doctest_tells_a_right_sum_from_a_wrong_one(tmp_path: Path) -> None:
    said = create("doctest", "2.4.11", "linux-x86_64", tmp_path)
    assert "doctest: a right sum passes, a wrong one fails" in said


@pytest.mark.parametrize("target_name", ["linux-x86_64", "linux-arm64"])
def test_flatbuffers_headers_serve_the_target_and_flatc_the_machine_that_builds(
    target_name: str, tmp_path: Path
) -> None:
    said = create("flatbuffers", FLATBUFFERS, target_name, tmp_path)
    assert "Generating point_generated.h" in said
    assert ("flatbuffers: written, verified, read" in said) is (target_name == "linux-x86_64")
    assert list(tmp_path.rglob("point_generated.h"))


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
        return ran([sys.executable, "-m", "conans.conan", *words], env=env)

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
    nodes = json.loads(well(done).stdout)["graph"]["nodes"].values()
    return Path(next(node["package_folder"] for node in nodes if node["name"] == "fxdiv"))


def record(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "licenses" / "source.json").read_text(encoding="utf-8"))
    return found


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    return well(ran(["git", *identity, "-C", folder, *words])).stdout.strip()


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
    well(ran(["dpkg-deb", "--build", root, tmp_path / "built.deb"]))
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
