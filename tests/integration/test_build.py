"""Bundles as a user builds them, one for each libc, and builds that fail, are interrupted or run at the same time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import BuildError, HostError
from core.formats.bundle import MANIFEST, RUNNER, Bundle
from core.paths import ROOT
from tests.support.processes import alive, descendants, ended, ran
from toolchains.bundle import builder, conan, conan_packages, inputs
from toolchains.compilers import families, gnu, zig
from toolchains.emulation import emulators
from toolchains.emulation.platforms import platform_for
from toolchains.inspect import needs as inspect
from toolchains.targets import get_target, host_target, load_targets

pytestmark = pytest.mark.build

TARGETS = ("linux-x86_64", "linux-arm64")


@pytest.fixture(scope="module")
def dist_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_DIST", str(folder))
        yield folder


@pytest.fixture(scope="module", params=TARGETS)
def bundle(request: pytest.FixtureRequest, dist_folder: Path) -> Bundle:
    return builder.build(request.param)


def test_a_bundle_is_whole_and_says_what_it_needs(bundle: Bundle, dist_folder: Path) -> None:
    manifest = bundle.manifest
    target = get_target(manifest.target)
    assert bundle.path == dist_folder / target.name / "executorch"
    assert manifest.toolchain == "zig 0.17.0"
    runner = (bundle.path / RUNNER).read_bytes()
    assert b"$ORIGIN:$ORIGIN/../lib\0" in runner
    assert b"$ORIGIN:$ORIGIN/../lib\0\0" not in runner, "the length of the build folder's path is in it"
    # Symbols stay: the check of instructions names functions by them, and refuses a program without (checks.py).
    assert b".symtab" in runner
    assert b".debug_info" not in runner
    assert manifest.needs.machine == target.machine
    assert inspect.number(manifest.needs.glibc) <= (2, 28)
    assert inspect.number(manifest.needs.glibcxx) <= (3, 4, 25)
    assert manifest.offers.engine == "executorch"
    assert "XnnpackBackend" in manifest.offers.backends
    assert manifest.offers.kleidiai is (manifest.needs.machine == "aarch64")
    assert "aten::add.out" in manifest.offers.operators
    native = emulators.is_native(target)
    assert manifest.offers.verified == ("native" if native else f"{target.qemu} -cpu {target.qemu_cpu}")
    there = {file.relative_to(bundle.path).as_posix() for file in bundle.path.rglob("*") if file.is_file()}
    assert there == {entry.path for entry in manifest.files} | {MANIFEST}
    assert [entry.path for entry in manifest.files if entry.executable] == [RUNNER]


@pytest.mark.parametrize(
    ("name", "cpu"), [(name, cpu) for name in TARGETS for cpu in get_target(name).qemu_cpus], ids=str
)
def test_it_runs_on_every_cpu_of_the_table(name: str, cpu: str, dist_folder: Path) -> None:
    done = platform_for(get_target(name), cpu).run(builder.build(name).path / RUNNER, ["--capabilities", "--json"])
    assert done.returncode == 0, done.stderr
    assert "XnnpackBackend" in json.loads(done.stdout)["backends"]


BEYOND = {
    "x86_64": ("__SSE3__", "__AVX__"),
    "i686": ("__SSE3__", "__AVX__"),
    "aarch64": ("__ARM_FEATURE_ATOMICS", "__ARM_FEATURE_DOTPROD", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC"),
    "armv7l": ("__ARM_FEATURE_FMA", "__ARM_ARCH 8"),
    "armv6l": ("__ARM_NEON", "__ARM_ARCH 7", "__ARM_ARCH 8"),
}
"""Macros of instructions that a machine's floor lacks."""


@pytest.mark.parametrize("name", [name for name, target in load_targets().items() if target.os not in ("macos", "ios")])
def test_compilers_know_what_the_floor_of_a_target_lacks(name: str) -> None:
    """What a compiler may use everywhere, because no check of the processor comes before it."""
    target = get_target(name)
    words = [zig.ensure(target).cc, *families.hardening(target).compile, "-O2", "-E", "-dM", "-x", "c", os.devnull]
    macros = {line.removeprefix("#define ").strip() for line in ran(words).stdout.splitlines()}
    known = macros | {macro.partition(" ")[0] for macro in macros}
    assert "__OPTIMIZE__" in known
    assert [macro for macro in BEYOND[target.machine] if macro in known] == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second checkout that shares the cache, to break things in; its bundles go to a ``dist`` of its own."""
    copy = tmp_path / "checkout"
    for name in ("runtime", "recipes"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conanfile.py", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for module in (conan_packages, inputs, conan):
        monkeypatch.setattr(module, "ROOT", copy)
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    return copy


def test_a_compile_error_shows_the_line(checkout: Path, tmp_path: Path) -> None:
    with (checkout / "runtime/runner/main.cpp").open("a", encoding="utf-8") as file:
        file.write("int broken = not_declared_anywhere;\n")
    with pytest.raises(BuildError, match="not_declared_anywhere") as caught:
        builder.build("linux-x86_64")
    assert caught.value.hint.startswith("less ")
    assert not (tmp_path / "dist/linux-x86_64/executorch").exists()


def start(*words: str) -> subprocess.Popen[str]:
    code = "import sys; from toolchains.bundle.builder import build; build(sys.argv[1], force='force' in sys.argv)"
    argv = [sys.executable, "-c", code, *words]
    return subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_ctrl_c_leaves_nothing_half_written(dist: Path) -> None:
    child = start("linux-x86_64", "force")
    assert child.stderr is not None
    assert any(line.startswith("[3/5]") for line in child.stderr)
    children = descendants(child.pid)
    assert children
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert ended(lambda: [pid for pid in children if alive(pid)])
    assert [path for path in dist.rglob("*") if path.is_file()] == []
    assert "XnnpackBackend" in builder.build("linux-x86_64").manifest.offers.backends


def test_two_builds_at_once_take_turns(dist: Path) -> None:
    both = [start("linux-arm64") for _ in range(2)]
    outputs = [child.communicate(timeout=600)[1] for child in both]
    assert [child.returncode for child in both] == [0, 0], outputs
    # One built, the other found it done.
    assert sorted(output.count("\nbuilt ") for output in outputs) == [0, 1]
    assert Bundle.load(dist / "linux-arm64/executorch").manifest.target == "linux-arm64"


def test_what_the_systems_gcc_builds_is_refused_where_devices_are_older(dist: Path) -> None:
    """The system's GCC links against this machine's glibc: a bundle for older devices must not come out of it."""
    target = host_target()
    reason = gnu.usable(target)
    if reason:
        with pytest.raises(HostError, match=re.escape(reason.partition(": ")[0])):
            builder.build(target.name, toolchain="gnu")
        return
    try:  # of the wrong outcome there is no bundle, of the right one tests/unit/test_builder.py says more
        built = builder.build(target.name, toolchain="gnu")
    except BuildError as error:
        assert "needs GLIBC" in error.cause
        assert "--toolchain zig" in error.hint
        return
    assert built.manifest.toolchain.startswith("gnu ")
    assert "XnnpackBackend" in built.manifest.offers.backends
