"""The Conan package ``slipway``: created here, uploaded to Conan's server, installed where no checkout is."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.files import locked
from core.paths import ROOT
from core.processes.commands import run
from tests.conftest import Inv
from tests.support import examples
from tests.support.conan_homes import PASSWORD, USER, Home, server
from tests.support.processes import well
from toolchains.bundle import conan, conan_packages
from toolchains.targets import get_target

from .test_libslipway import expected

pytestmark = [pytest.mark.build, pytest.mark.export]

TARGET, ARM = "linux-x86_64", "linux-arm64"
RECIPE, TESTS = ROOT / "recipes" / "slipway" / "all", ROOT / "recipes" / "slipway_sources" / "test_package"
ANSWERS = ["slipway 0.1.0: C++, -0.212238", "slipway 0.1.0: C, -0.212238"]
"""What the programs of the test package print."""


@dataclass(frozen=True)
class Created:
    """The package in Slipway's own home, static and shared."""

    log: Path
    profiles: list[str]
    """``--profile:host`` and ``--profile:build``, of files that ``./inv build --profiles`` wrote."""
    graphs: dict[bool, dict[str, Any]]
    """What ``conan create --format=json`` printed, by the option ``shared``."""
    said: dict[bool, list[str]]

    @property
    def reference(self) -> str:
        nodes = self.graphs[False]["nodes"].values()
        return next(str(node["ref"]) for node in nodes if str(node["ref"]).startswith("slipway/"))


@pytest.fixture(scope="module")
def created(inv: Inv, tmp_path_factory: pytest.TempPathFactory) -> Created:
    """``conan create`` of the recipe with the profiles that a user has; what it needs is built first."""
    folder = tmp_path_factory.mktemp("create")
    log = folder / "conan.log"
    well(inv("build", "--profiles", str(folder / "profiles"), "--target", f"{TARGET},{ARM}"))
    profiles = [f"--profile:host={folder}/profiles/{TARGET}", f"--profile:build={folder}/profiles/build"]
    with conan_packages.building():
        common = [*conan_packages.words(get_target(TARGET), "", log)[2:], *profiles]
    graphs, said = {}, {}
    for shared in (False, True):
        words = [*common, f"--options=slipway/*:shared={shared}"]
        lines: list[str] = []
        # Conan builds the test package beside its sources otherwise, in the checkout.
        apart = [f"--test-folder={TESTS}", f"--conf=tools.cmake.cmake_layout:test_folder={folder}/test-{shared}"]
        apart += ["--conf=tools.cmake.cmaketoolchain:user_presets=", "--build=missing", "--format=json"]
        with conan_packages.building():
            graphs[shared] = json.loads(conan.conan(["create", RECIPE, *words, *apart], log=log, heard=lines.append))
            (made,) = (node for node in graphs[shared]["graph"]["nodes"].values() if node["name"] == "slipway")
            conan_packages.forget(made["ref"], log)
        said[shared] = lines
    return Created(log, profiles, {key: graph["graph"] for key, graph in graphs.items()}, said)


@pytest.mark.parametrize("shared", [False, True])
def test_the_package_passes_its_own_test(created: Created, shared: bool) -> None:
    assert [line for line in created.said[shared] if line.startswith("slipway 0.1.0:")] == ANSWERS
    node = next(node for node in created.graphs[shared]["nodes"].values() if node["name"] == "slipway")
    (file,) = Path(node["package_folder"], "lib").glob("libslipway*" if not shared else "libslipway.so")
    assert file.name == ("libslipway.so" if shared else "libslipway.a")
    assert node["cpp_info"]["lean"]["properties"]["cmake_target_name"] == "slipway::lean"
    assert (node["package_type"], node["options"].get("fPIC")) == (
        ("shared-library", None) if shared else ("static-library", "True")
    )


def test_a_wrong_value_is_refused_before_a_build(created: Created, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.conan("remote", "add", "slipway", ROOT, "--type=local-recipes-index", "--index=0", cwd=tmp_path)
    words = ["--requires=slipway/0.1.0", *created.profiles, "--remote=slipway", "--build=missing"]
    for option, said in (
        ("operators=aten/ad.out", "operators: there is no 'aten/ad.out'. did you mean aten/add.out?"),
        ("operators=aten/add.out+aten::mul.out", "operators: there is no 'aten::mul.out'. did you mean aten/mul.out?"),
        ("backends=Xnnpack", "backends: there is no 'Xnnpack'. did you mean XnnpackBackend?"),
    ):
        told = home.conan("install", *words, f"--options=slipway/*:{option}", cwd=tmp_path, code=6)
        assert f"slipway/0.1.0: Invalid: {said}" in told


@pytest.fixture(scope="module")
def remote(created: Created, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The URL of a Conan server with the packages, uploaded as docs/build.md says."""
    folder = tmp_path_factory.mktemp("upload")
    archive = folder / "packages.tgz"
    lists = []
    for shared, graph in created.graphs.items():
        (folder / f"{shared}.json").write_text(json.dumps({"graph": graph}), encoding="utf-8")
        lists.append(folder / f"list-{shared}.json")
        words = [f"--graph={folder}/{shared}.json", "--format=json"]
        lists[-1].write_text(conan.conan(["list", *words], log=created.log), encoding="utf-8")
    merged = folder / "list.json"
    words = [f"--list={file}" for file in lists]
    merged.write_text(conan.conan(["pkglist", "merge", *words, "--format=json"], log=created.log), encoding="utf-8")
    # Slipway's own home keeps its remotes: what is uploaded goes through another one.
    with locked(conan.LOCK):
        conan.conan(["cache", "save", f"--list={merged}", f"--file={archive}"], log=created.log)
    uploader = Home(folder / "home")
    uploader.conan("cache", "restore", archive, cwd=folder)
    with server(folder / "server") as url:
        uploader.conan("remote", "add", "ours", url, cwd=folder)
        uploader.conan("remote", "login", "ours", USER, "--password", PASSWORD, cwd=folder)
        uploader.conan("upload", "*", "--remote=ours", "--confirm", cwd=folder)
        yield url


@pytest.fixture
def machine(created: Created, remote: str, tmp_path: Path) -> tuple[Home, list[str]]:
    """An empty Conan home that has the remote alone, and profiles in which nothing names this checkout."""
    home = Home(tmp_path / "home")
    home.conan("remote", "remove", "conancenter", cwd=tmp_path)
    home.conan("remote", "add", "ours", remote, cwd=tmp_path)
    words = []
    for word in created.profiles:
        option, _, file = word.partition("=")
        copy = tmp_path / Path(file).name
        text = Path(file).read_text(encoding="utf-8").replace(os.fspath(ROOT), "/nonexistent")
        copy.write_text(text, encoding="utf-8")
        words.append(f"{option}={copy}")
    return home, words


def test_a_second_machine_installs_binaries_and_links_them(machine: tuple[Home, list[str]], tmp_path: Path) -> None:
    """The application links the static library, which needs all others; the package's own test has the shared one."""
    home, profiles = machine
    work = tmp_path / "work"
    shutil.copytree(ROOT / "runtime/examples", work / "examples")
    words = [*profiles, "--build=never", "--output-folder=conan", "-g", "CMakeDeps", "-g", "CMakeToolchain"]
    for shared in (True, False):
        home.conan("install", "--requires=slipway/0.1.0", f"--options=slipway/*:shared={shared}", *words, cwd=work)
    examples.configure(work / "examples", work / "build", work / "conan/conan_toolchain.cmake")
    check(work, work / "build")


def test_the_index_alone_has_all_that_a_build_needs(created: Created, tmp_path: Path) -> None:
    """Conan Center, the remote of every fresh home, is not reached: docs/embedding.md."""
    home = Home(tmp_path / "home")
    home.conan("remote", "update", "conancenter", "--url=http://127.0.0.1:9", cwd=tmp_path)
    home.conan("remote", "add", "slipway", ROOT, "--type=local-recipes-index", "--index=0", cwd=tmp_path)
    profiles = [word.replace(TARGET, ARM) for word in created.profiles]
    words = ["--requires=slipway/0.1.0", "--build=missing", *profiles, "--remote=slipway", "--format=json"]
    graph = json.loads(home.conan("graph", "info", *words, cwd=tmp_path))["graph"]["nodes"].values()
    nodes = {node["name"]: node for node in graph if node["name"]}
    for name in ("slipway", "xnnpack", "pthreadpool", "cpuinfo", "kleidiai"):
        assert nodes[name]["binary"] == "Build", name
    assert {node["remote"] for node in nodes.values()} == {"slipway"}
    assert nodes["slipway"]["ref"].partition(":")[0] == created.reference.partition(":")[0]


_PACKAGES = """\
[requires]
xnnpack/cci.20241108
xnnpack_internals/cci.20241108
flatbuffers/23.5.26
[tool_requires]
flatbuffers/23.5.26
executorch/1.5.1
[generators]
CMakeDeps
CMakeToolchain
VirtualBuildEnv
"""
_PROJECT = """\
cmake_minimum_required(VERSION 3.28)
project(application LANGUAGES C CXX)
add_subdirectory(runtime)
add_executable(run_once run_once.c)
target_link_libraries(run_once PRIVATE slipway::lean)
"""


def check(folder: Path, built: Path) -> None:
    """Every example's outputs are those of pte_runner."""
    want = expected(TARGET, folder)
    programs = [file for file in sorted(built.glob("run_once*")) if file.is_file()]
    assert programs
    for file in programs:
        run([file, "model.pte", "in.bin", "out.bin"], cwd=folder)
        assert (folder / "out.bin").read_bytes() == want, file.name


def test_the_sources_build_inside_another_project(created: Created, tmp_path: Path) -> None:
    """``add_subdirectory(runtime)``: the packages are found, and nothing comes from the checkout."""
    shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("tests", "fuzz"))
    shutil.copy(ROOT / "runtime/examples/run_once.c", tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(_PROJECT, encoding="utf-8")
    (tmp_path / "conanfile.txt").write_text(_PACKAGES, encoding="utf-8")
    with conan_packages.building():
        words = [*conan_packages.words(get_target(TARGET), "", created.log)[2:], *created.profiles]
        words += ["--options:build=flatbuffers/*:flatc=True", f"--output-folder={tmp_path}/conan", "--build=missing"]
        text = conan.conan(["install", str(tmp_path), *words, "--format=json"], log=created.log)
    nodes = [node for node in json.loads(text)["graph"]["nodes"].values() if node["package_folder"]]
    tools = {node["name"]: Path(node["package_folder"]) for node in nodes if node["context"] == "build"}
    paths = [f"-DEXECUTORCH_SCHEMA_DIR={tools['executorch']}/res/schema", f"-DFLATC={tools['flatbuffers']}/bin/flatc"]
    toolchain = tmp_path / "conan/conan_toolchain.cmake"
    examples.configure(tmp_path, tmp_path / "build", toolchain, paths)
    assert not list((tmp_path / "build").rglob("pte_runner"))
    check(tmp_path, tmp_path / "build")
