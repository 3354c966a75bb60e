"""SDKs in the hands of other projects: plain find_package, any of the names, no care for registration."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from core.errors import BuildError, HostError
from core.files import locked
from core.paths import ROOT, cache_dir
from tests.support import examples
from tests.support.archive import make_wheel
from tests.support.builds import least
from tests.support.processes import ran
from toolchains import tools
from toolchains.bundle import conan, conan_packages
from toolchains.compilers.families import family
from toolchains.emulation import emulators
from toolchains.targets import Target, get_target, host_target

from .test_recipes import run_test_package

pytestmark = pytest.mark.build

CONSUMER = Path(__file__).parent / "test_consumer"


def install(target: Target, folder: Path, *words: str) -> str:
    """``conan install`` of the SDK into ``folder`` (else Conan writes into the checkout); its graph as JSON."""
    log = cache_dir("logs") / "test-sdk.log"
    options = ["--build=missing", "--format=json", f"--output-folder={folder}", *words]
    return conan.conan(
        ["install", "--requires=executorch/1.5.1", *conan_packages.words(target, "", log), *options], log=log
    )


def package_of(target: Target, folder: Path) -> Path:
    with conan_packages.building():
        nodes = json.loads(install(target, folder))["graph"]["nodes"].values()
    return Path(next(node["package_folder"] for node in nodes if node["name"] == "executorch"))


@pytest.fixture(scope="module")
def sdk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Target, Path]:
    target = get_target(request.param)
    return target, package_of(target, tmp_path_factory.mktemp("install"))


def compile_consumer(sdk: tuple[Target, Path], folder: Path, cxx: str, *, link: str = "") -> None:
    """Configure and build the consumer as its author would: a compiler, a prefix path, nothing else."""
    target, package = sdk
    words = [f"-DCMAKE_CXX_COMPILER={cxx}", f"-DCMAKE_PREFIX_PATH={package}"]
    words.append("-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed")
    if not emulators.is_native(target):
        words += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={target.cmake_processor}"]
    if link:
        words.append(f"-DLINK={link}")
    examples.configure(CONSUMER, folder, None, words)


def registered(target: Target, program: Path) -> list[str]:
    done = least(target).run(program, [])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


HERE = pytest.mark.parametrize("sdk", ["linux-x86_64"], indirect=True)
NAMES = [
    "executorch;executorch_backends;executorch_kernels",
    "executorch;xnnpack_backend;extension_module;extension_tensor;optimized_native_cpu_ops_lib;etdump",
]


@pytest.mark.parametrize(
    ("sdk", "link"), [*(("linux-x86_64", name) for name in NAMES), ("linux-arm64", NAMES[0])], indirect=["sdk"]
)
def test_a_plain_consumer_has_the_backend(sdk: tuple[Target, Path], tmp_path: Path, link: str) -> None:
    compile_consumer(sdk, tmp_path, family("zig").ensure(sdk[0]).cxx, link=link)
    for program in ("app", "indirect"):
        lines = registered(sdk[0], tmp_path / program)
        assert "backend XnnpackBackend" in lines
        assert int(lines[-1].removeprefix("operators ")) > 150


@HERE
def test_a_consumer_that_asks_for_less_gets_less(sdk: tuple[Target, Path], tmp_path: Path) -> None:
    """The counter-check: without the backend's target there is no backend, so the tests above can fail."""
    compile_consumer(sdk, tmp_path, family("zig").ensure(sdk[0]).cxx, link="executorch")
    assert not [line for line in registered(sdk[0], tmp_path / "app") if line.startswith("backend")]


def test_a_consumer_with_the_systems_own_compilers(tmp_path: Path) -> None:
    """GNU ld and its own --push-state, where no wrapper of ours helps; a bare machine has none of them."""
    target = host_target()
    package = package_of(target, tmp_path / "install")
    for compiler in filter(shutil.which, ("g++", "clang++")):
        compile_consumer((target, package), tmp_path / compiler, compiler)
        assert "backend XnnpackBackend" in registered(target, tmp_path / compiler / "app")


@pytest.mark.parametrize(("wanted", "found"), [("1.5", "1"), ("1.6", "0")])
@HERE
def test_versions_are_answered(sdk: tuple[Target, Path], tmp_path: Path, wanted: str, found: str) -> None:
    lines = ["cmake_minimum_required(VERSION 3.19)", "project(v NONE)", f"find_package(executorch {wanted} CONFIG)"]
    lines += ['message(STATUS "FOUND=${executorch_FOUND}")', ""]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines), encoding="utf-8")
    words = [f"-DCMAKE_MAKE_PROGRAM={tools.program('ninja')}", f"-DCMAKE_PREFIX_PATH={sdk[1]}"]
    done = ran([tools.program("cmake"), "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", *words])
    assert f"FOUND={found}\n" in done.stdout, done.stdout + done.stderr


@HERE
def test_pkg_config_and_conan_users_keep_the_backend_too(sdk: tuple[Target, Path], tmp_path: Path) -> None:
    """A package manager's own description of the package: what it tells other build systems to link."""
    with locked(conan.LOCK):
        install(sdk[0], tmp_path, "--generator=PkgConfigDeps")
    text = (tmp_path / "executorch_backend_xnnpack.pc").read_text(encoding="utf-8")
    assert "-Wl,--push-state,--no-as-needed,-lexecutorch_backend_xnnpack,--pop-state" in text
    assert "Requires: executorch_runtime" in text


@HERE
def test_the_recipes_own_test(sdk: tuple[Target, Path], tmp_path: Path) -> None:
    """``test_package``, as Conan runs it for anyone who takes the recipe."""
    assert "backend XnnpackBackend" in run_test_package("executorch/1.5.1", sdk[0].name, tmp_path)


@pytest.mark.parametrize(
    ("served", "error", "message"),
    [(True, BuildError, "is not the file that was pinned"), (False, HostError, "pip could not fetch")],
)
def test_a_wheel_that_is_wrong_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: bool, error: type[Exception], message: str
) -> None:
    recipe, wheels = tmp_path / "recipe", tmp_path / "wheels"
    shutil.copytree(ROOT / "recipes/executorch/all", recipe)
    wheels.mkdir()
    if served:
        for platform in ("x86_64", "aarch64"):
            # pip takes it for the pinned one, until somebody looks at its digest.
            make_wheel(wheels, "executorch", "1.5.1", {}, f"cp311-cp311-manylinux_2_28_{platform}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(error, match=message), locked(conan.LOCK):
        conan.conan(["source", recipe, "--version=1.5.1"], log=cache_dir("logs") / "test-sdk.log")


@pytest.mark.export
@pytest.mark.parametrize(
    ("engine", "device"),
    [
        ("executorch", "local"),
        ("onnxruntime", "local"),
        # The sample that CI runs is this machine's, in the lines before.
        *(
            pytest.param(engine, device, marks=[pytest.mark.long, pytest.mark.virtual])
            for engine, device in (("executorch", "pi"), ("onnxruntime", "pi2"))
        ),
    ],
)
def test_the_examples_compute_what_the_engines_runner_computes(engine: str, device: str, tmp_path: Path) -> None:
    examples.run_installed(device, engine, tmp_path)
