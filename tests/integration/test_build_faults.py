"""Builds that must fail, or are cut short, or meet another one."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BuildError, HostError
from core.formats.bundle import Bundle
from core.paths import ROOT
from tests.support.processes import alive, descendants, ended
from toolchains.bundle import builder, conan, conan_packages, inputs
from toolchains.compilers import gnu
from toolchains.targets import host_target

pytestmark = pytest.mark.build


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second checkout that shares the cache, to break things in; its bundles go to a ``dist`` of its own."""
    copy = tmp_path / "checkout"
    for name in ("runtime", "recipes"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conanfile.py", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    monkeypatch.setattr(conan_packages, "ROOT", copy)
    monkeypatch.setattr(inputs, "ROOT", copy)
    monkeypatch.setattr(conan, "ROOT", copy)
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
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


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
