"""What a build's digest counts: the files that go into it, and nothing else."""

from __future__ import annotations

import ast
import fnmatch
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import BuildError
from core.paths import ROOT
from toolchains.bundle import inputs
from toolchains.targets import get_target

TARGET = get_target("linux-arm64")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of all that can count; who changes it puts it back."""
    copied = tmp_path_factory.mktemp("checkout")
    for name in ("runtime", "recipes", "toolchains", "core/formats/bundle.py", "conanfile.py", "LICENSE"):
        source, copy = ROOT / name, copied / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    yield copied


def changes(checkout: Path, kind: str, name: str) -> bool:
    """Whether one more byte in a file, which need not exist, changes the digest."""
    file = checkout / name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "ROOT", checkout)
        patch.setattr(inputs, "_CODE", checkout)
        before, there = inputs.digest(kind, TARGET), file.read_bytes() if file.is_file() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((there or b"") + b"\n")
        after = inputs.digest(kind, TARGET)
    file.unlink() if there is None else file.write_bytes(there)
    return before != after


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("lean", "runtime/engines/lean/CMakeLists.txt"),
        ("lean", "runtime/engines/lean/a_new_kernel.cpp"),
        ("onnxruntime", "runtime/engines/onnxruntime/provider_rules.toml"),
        ("lean", "conanfile.py"),
        ("lean", "LICENSE"),
        ("lean", "core/formats/bundle.py"),  # the manifest's schema
        ("lean", "toolchains/bundle/layout.py"),
        ("lean", "recipes/xnnpack/all/patches/0001-all-of-the-scalar-5x5-depthwise-kernel.patch"),
        ("lean", "recipes/xnnpack_internals/all/conanfile.py"),
        ("executorch", "runtime/engines/executorch/threads.cpp"),
        ("onnxruntime", "recipes/onnxruntime/all/conandata.yml"),
        ("native", "recipes/kleidiai/all/fortify/fortify.c"),
    ],
)
def test_a_file_that_goes_in_counts(checkout: Path, kind: str, name: str) -> None:
    assert changes(checkout, kind, name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("lean", "runtime/tests/test_npy.cpp"),
        ("lean", "runtime/fuzz/sweep.cpp"),
        ("lean", "runtime/engines/onnxruntime/onnx_file.cpp"),
        ("lean", "runtime/engines/executorch/threads.cpp"),
        ("lean", "recipes/onnxruntime/all/conandata.yml"),
        ("lean", "recipes/xnnpack/all/test_package/test_package.cpp"),
        ("onnxruntime", "recipes/xnnpack/all/conanfile.py"),
        ("native", "runtime/runner/files/npy.cpp"),
    ],
)
def test_what_goes_into_another_build_does_not_count(checkout: Path, kind: str, name: str) -> None:
    assert not changes(checkout, kind, name)


@pytest.mark.parametrize(
    "name",
    [
        "runtime/engines/lean/__pycache__/x.cpython-311.pyc", "runtime/runner/a.out", "runtime/runner/main.cpp.orig",
        "runtime/runner/main.cpp~", "runtime/CMakeUserPresets.json", "recipes/xnnpack/all/.pytest_cache/v/lastfailed",
        "recipes/xnnpack/all/__pycache__/conanfile.py", "runtime/runner/notes.txt",
    ],
)  # fmt: skip
def test_a_stray_file_does_not_count(checkout: Path, name: str) -> None:
    assert not changes(checkout, "lean", name)
    assert not changes(checkout, "native", name)


def test_every_file_counts_somewhere_and_conan_packs_what_counts() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "runtime", "recipes"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # The recipe slipway is for other people's projects.
    runtime = (f"runtime/{name}" for name in ("bindings/", "examples/", "tests/", "fuzz/", ".clang-format"))
    apart = (*runtime, "recipes/doctest/", "recipes/slipway/")
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    shipped = {name for name in there if not name.startswith(apart) and "/test_package/" not in name}
    counted = {name for kind in inputs.SOURCES for name, _ in inputs.files(kind)}
    assert len(shipped) > 200
    assert shipped - counted == set()
    (recipe,) = (
        node for node in ast.parse((ROOT / "conanfile.py").read_text("utf-8")).body if isinstance(node, ast.ClassDef)
    )
    (patterns,) = (
        ast.literal_eval(node.value)
        for node in recipe.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "exports_sources"
    )
    files = [
        file.relative_to(ROOT).as_posix()
        for file in [ROOT / "LICENSE", *(ROOT / "runtime").rglob("*")]
        if file.is_file()
    ]
    out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    packed = {
        name for name in files
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        and not any(fnmatch.fnmatch(name, pattern) for pattern in out)
    }  # fmt: skip
    counted = {name for kind in inputs.SOURCES if kind != inputs.NATIVE for name, _ in inputs.files(kind)}
    assert packed == {name for name in counted if name.startswith("runtime/")} | {"LICENSE"}


def test_a_recipe_that_nothing_counts_stops_the_build() -> None:
    node = {"name": "xnnpack", "python_requires": {"slipway_sources/1.0#abc": {}}}
    graph = {"nodes": {"0": {"name": None}, "1": node, "2": {"name": "slipway-runtime", "python_requires": None}}}
    inputs.hold_against("lean", graph)
    with pytest.raises(BuildError, match="does not count recipes/xnnpack") as caught:
        inputs.hold_against("executorch", graph)
    assert caught.value.names == ("xnnpack",)
