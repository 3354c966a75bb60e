"""What decides whether a build is needed and counts for it, what a failed one says, and the checks on its result."""

from __future__ import annotations

import dataclasses
import fnmatch
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import BuildError, HostError, NotSupportedError, UsageError
from core.files import write_atomic
from core.formats.bundle import MANIFEST, RUNNER, Bundle, Checks
from core.paths import ROOT
from tests.support.processes import executable, ran
from tests.unit.test_preflight import bundle
from tests.unit.test_profiles import profile
from toolchains.bundle import builder, conan, conan_packages, inputs, layout
from toolchains.bundle.inputs import Selection, select
from toolchains.bundle.making import Job
from toolchains.bundle.offers import ask, operators_in
from toolchains.compilers import families as compilers
from toolchains.emulation import emulators
from toolchains.inspect import checks
from toolchains.inspect import needs as inspect
from toolchains.targets import get_target

TARGET = get_target("linux-arm64")
COMPILERS = compilers.Compilers(
    "zig", "0.17.0", "zig-0.17.0-abc", "/c/cc", "/c/c++", "/c/ar", "/c/ranlib",
    {"compiler": "clang", "compiler.version": "22", "compiler.libcxx": "libstdc++11"},
)  # fmt: skip


@pytest.fixture
def builds(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The builds that were really made, with a checkout to change and a build that takes no time."""
    made: list[str] = []
    checkout = tmp_path / "checkout"
    for name in ("conanfile.py", "LICENSE", "runtime/runner/main.cpp", "recipes/executorch/config.yml"):
        write_atomic(checkout / name, "1")
    monkeypatch.setattr(inputs, "ROOT", checkout)

    def package(job: Job, steps: Any, product: str) -> tuple[Path, dict[str, Any]]:
        made.append(f"{job.target.name} {job.toolchain}")
        root: dict[str, Any] = {"name": "slipway-runtime", "ref": "slipway-runtime/0.1.0#1", "context": "host"}
        root |= {"test": False, "dependencies": {}}
        return tmp_path, {"nodes": {"0": root}}

    def collect(_: Path, out: Path) -> None:
        executable(out / RUNNER, f"runner {len(made)}")

    binary = inspect.Binary(Path("pte_runner"), "aarch64", "none", "/lib/ld-linux-aarch64.so.1", "", (), (), {})
    family = SimpleNamespace(ensure=lambda target: COMPILERS, linked=lambda target: ())
    monkeypatch.setattr(conan_packages, "make", package)
    monkeypatch.setattr(compilers, "family", lambda name: family)
    monkeypatch.setattr(layout, "collect", collect)
    monkeypatch.setattr(layout, "check", lambda job, folder: ([binary], Checks(floor="Armv8-A", code=())))
    monkeypatch.setattr(layout, "offers", lambda job, folder: bundle().manifest.offers)
    return made


def test_nothing_changed_means_nothing_to_do_and_another_toolchain_is_a_build(builds: list[str]) -> None:
    first = builder.build("linux-arm64")
    assert builder.build("linux-arm64") == first
    assert builds == ["linux-arm64 zig"]
    builder.build("linux-arm64", toolchain="gnu")
    builder.build("linux-arm64", toolchain="gnu", force=True)
    builder.build("linux-arm64", toolchain="gnu", allow_newer_glibc=True)
    assert builds == ["linux-arm64 zig", "linux-arm64 gnu", "linux-arm64 gnu", "linux-arm64 gnu"]


@pytest.mark.parametrize(
    ("name", "left"), [(RUNNER, ""), (RUNNER, "rubbish!"), (MANIFEST, "{}"), ("../.executorch.built.json", "[")]
)
def test_a_damaged_bundle_is_built_again(builds: list[str], name: str, left: str) -> None:
    folder = builder.build("linux-arm64").path
    (folder / name).unlink()
    if left:
        (folder / name).write_text(left, encoding="utf-8")
    assert builder.build("linux-arm64").path == folder
    assert len(builds) == 2


def test_a_failed_check_leaves_the_bundle_that_was_there(
    builds: list[str], dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = builder.build("linux-arm64")

    def refuse(*_: object) -> None:
        raise BuildError("no")

    monkeypatch.setattr(layout, "check", refuse)
    with pytest.raises(BuildError):
        builder.build("linux-arm64", force=True)
    assert Bundle.load(before.path) == before
    assert {path.name for path in (dist / "linux-arm64").iterdir()} == {"executorch", ".executorch.built.json"}


def job(**changes: Any) -> Job:
    return Job(TARGET, "zig", "executorch", Path("nowhere"), **changes)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo boo >&2; exit 3", r"failed \(exit 3\)"),
        ("kill -SEGV $$", r"failed \(exit -11\)"),
        ("echo '{}'", "did not print what it should"),
        ("echo hello", "did not print what it should"),
    ],
)
def test_a_runner_that_does_not_run_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setattr(emulators, "is_native", lambda target: True)
    executable(tmp_path / RUNNER, f"#!/bin/sh\n{script}\n")
    with pytest.raises(BuildError, match=message):
        layout.offers(job(), tmp_path)


def test_newer_glibc_and_a_build_without_a_runner_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = inspect.Binary(
        Path("pte_runner"), "aarch64", "none", "/lib/ld-linux-aarch64.so.1", "", ("libc.so.6",), ("$ORIGIN",),
        {"GLIBC": "2.34", "GLIBCXX": "3.4.30"},
    )  # fmt: skip
    monkeypatch.setattr(inspect, "read_all", lambda file: iter([binary]))
    monkeypatch.setattr(checks, "check_hardening", lambda *_, **__: ())
    monkeypatch.setattr(checks, "check_code", lambda *_, **__: Checks(floor="Armv8-A", code=()))
    with pytest.raises(BuildError, match=r"needs GLIBC 2.34 \(at most 2.28\)") as caught:
        layout.check(job(), tmp_path)
    assert "--toolchain zig" in caught.value.hint
    assert layout.check(job(allow_newer_glibc=True), tmp_path)[0] == [binary]
    with pytest.raises(BuildError, match="left no bin/pte_runner"):
        layout.collect(tmp_path, tmp_path / "out")


def test_flags_compilers_and_their_place_count_in_a_packages_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "user.slipway:toolchain"
    first = profile(conan.render(TARGET, COMPILERS))[name]
    assert first.startswith("zig-0.17.0-abc-")
    elsewhere = dataclasses.replace(COMPILERS, cc="/elsewhere/cc")
    assert profile(conan.render(TARGET, elsewhere))[name] != first
    monkeypatch.setattr(conan, "_TEMPLATE", conan._TEMPLATE.replace("{{ library }}", '["-s", "-O3"]'))
    assert profile(conan.render(TARGET, COMPILERS))[name] != first


def test_conan_is_kept_apart_from_other_checkouts_and_projects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = conan.remote()
    monkeypatch.setattr(conan, "ROOT", tmp_path)
    assert conan.remote() != first
    for name in ("CONAN_DEFAULT_PROFILE", "CC", "CXXFLAGS", "CMAKE_TOOLCHAIN_FILE", "PYTHONPATH"):
        monkeypatch.setenv(name, "of-another-project")
    monkeypatch.setenv("PIP_INDEX_URL", "the-users-own")
    environment = conan._environment()
    assert "of-another-project" not in environment.values()
    assert environment["PIP_INDEX_URL"] == "the-users-own"


def test_a_failed_build_shows_the_cause(tmp_path: Path) -> None:
    lines = ["[1/3] Building a", "FAILED: [code=1] b.o", "c++ -c b.cpp", "b.cpp:1:1: error: nope", *["more"] * 50]
    assert conan.reasons(lines, most=3) == ["FAILED: [code=1] b.o", "c++ -c b.cpp", "b.cpp:1:1: error: nope"]
    assert conan.reasons(["a", "", "b", "c"], most=2) == ["b", "c"]
    assert conan.reasons(["error: " + "x" * 1000])[0].endswith(" ...")
    log, before = tmp_path / "a.log", "error: of an earlier build\n"
    for text, error in (
        ("executorch/1.5.1: pip could not fetch a.whl", HostError),
        ("x.cpp:1:1: error: nope\nmore\nNo space left on device", HostError),
        ("x.cpp:1: error: nope", BuildError),
    ):
        log.write_text(before + text, encoding="utf-8")
        found = conan.failure("Building", log, len(before))
        assert type(found) is error
        assert found.cause.splitlines()[0] == text.splitlines()[0]


UNRUNNABLE = b"\0aten::add.out\0std::bad_alloc\0x aten::no.out\0aten::_softmax.out\0XnnpackBackend\0aten::add.out\0a::b"


def test_operators_stand_alone_between_zero_bytes() -> None:
    assert operators_in(UNRUNNABLE) == ("aten::_softmax.out", "aten::add.out")
    numbers = b"\0\0\0Eaten::a.out\0\xf0?aten::b.out\0\x0e\x0fet_copy::c.out\0\0KKKaten::d\0"
    assert operators_in(numbers) == ("aten::a.out", "aten::b.out", "aten::d", "et_copy::c.out")


def test_a_runner_that_nothing_runs_is_read(tmp_path: Path) -> None:
    write_atomic(tmp_path / "bin/pte_runner.exe", UNRUNNABLE)
    offers = ask(get_target("windows-arm64"), "lean", tmp_path, ("XnnpackBackend", "Other"))
    assert offers.verified == "not run: PE header check only"
    assert (offers.engine, offers.backends, offers.kleidiai) == ("lean", ("XnnpackBackend",), False)
    assert offers.operators == ("aten::_softmax.out", "aten::add.out")
    assert offers.engine_version == "0.1.0"
    # An engine that comes compiled is in its library, whatever the runner names.
    write_atomic(tmp_path / "lib/libonnxruntime.so", b"\0Other\0VERS_1.29.0\0aten::add.out\0kai_run_x\0")
    offers = ask(get_target("windows-arm64"), "onnxruntime", tmp_path, ("XnnpackBackend", "Other"))
    assert (offers.engine_version, offers.backends, offers.kleidiai) == ("1.29.0", ("Other",), True)
    assert offers.operators == ()


def test_what_cannot_be_selected_is_refused() -> None:
    for operators, types in ((["aten::add;rm"], []), ([], ["xnnpack::f32 -x"])):
        with pytest.raises(UsageError, match="is not an operator"):
            select(["a"], operators, ["XnnpackBackend"], types)
    with pytest.raises(UsageError, match="does not name a program"):
        select([], [], [])
    with pytest.raises(NotSupportedError, match="for some programs only"):
        builder.build("linux-arm64", "executorch", selection=Selection(("a",), (), ()))


@pytest.fixture(scope="module")
def needed() -> Callable[[str, set[str]], bool]:
    """The rule of conanfile.py, which is not a module of ours."""
    recipe = runpy.run_path(str(ROOT / "conanfile.py"))
    return lambda name, types: bool(recipe["needed"](name, recipe["with_conversions"](types)))


@pytest.mark.parametrize(
    ("name", "kept_for", "left_out_for"),
    [
        ("f32_gemm_config", {"f32_layers"}, {"f32", "qs8_layers"}),
        ("f32_gemm_config", {"f16", "f16_layers"}, {"f16"}),  # processors without arithmetic for float16
        ("f32_vadd_config", {"qs8"}, set()),
        ("f16_vadd_config", {"f16"}, {"f32", "f32_layers"}),
        ("pf32_gemm_config", {"f32_layers"}, {"qs8_layers"}),
        ("qs8_qc8w_gemm_config", {"qs8_layers"}, {"qs8", "qd8_f32_qc8w_layers"}),
        ("qs8_qc8w_dwconv_config", {"qs8_layers"}, {"qd8_f32_qc8w_layers"}),
        ("qs8_vadd_config", {"qs8"}, {"qd8", "qu8"}),
        ("s8_maxpool_config", {"qs8"}, {"qu8"}),
        ("u8_maxpool_config", {"qu8"}, {"qs8"}),
        ("f32_to_qs8_cvt_config", {"qd8"}, {"f32"}),
        ("f32_to_qs8_cvt_config", {"qs8"}, {"qu8"}),
        ("f32_to_f16_cvt_config", {"f16"}, {"qs8"}),
        ("qd8_f32_qc4w_gemm_config", {"qd8_f32_qc4w_layers"}, {"qd8_f32_qb4w_layers", "qd8"}),
        ("qp8_f32_qb4w_gemm_config", {"qd8_f32_qb4w_layers"}, {"qd8_f32_qc4w_layers"}),
        ("qd8_f32_qc8w_gemm_config", {"qd8_f16_qc8w_layers"}, {"qs8_layers"}),
        ("qd8_f32_qc8w_igemm_minmax_ukernel_5x16c8__avx512skx", {"qd8_f32_qc8w_layers"}, {"f32_layers"}),
        ("x8_lut_config", {"f32"}, set()),
    ],
)
def test_kernels_are_linked_for_the_types_that_a_program_has(
    needed: Callable[[str, set[str]], bool], name: str, kept_for: set[str], left_out_for: set[str]
) -> None:
    assert needed(name, kept_for)
    assert not left_out_for or not needed(name, left_out_for)


def test_what_has_an_unknown_name_stays(needed: Callable[[str, set[str]], bool]) -> None:
    assert needed("hardware_config", {"f32"})
    assert needed("bf16_f32_gemm_minmax_ukernel", {"f32"})
    assert not needed("f32_spmm_config", {"f32", "f32_layers"}), "sparse layers are never made"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that can count; who changes it puts it back."""
    copied = tmp_path_factory.mktemp("checkout")
    for name in ("runtime", "recipes", "toolchains"):
        shutil.copytree(ROOT / name, copied / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("core/formats/bundle.py", "conanfile.py", "LICENSE"):
        write_atomic(copied / name, (ROOT / name).read_bytes())
    return copied


def changes(checkout: Path, kind: str, name: str) -> bool:
    """Whether one more byte in a file, which need not exist, changes the digest."""
    file = checkout / name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "ROOT", checkout)
        before, there = inputs.digest(kind, TARGET), file.read_bytes() if file.is_file() else None
        write_atomic(file, (there or b"") + b"\n")
        after = inputs.digest(kind, TARGET)
    file.unlink() if there is None else file.write_bytes(there)
    return before != after


@pytest.mark.parametrize(
    ("kind", "name", "counts"),
    [
        ("lean", "runtime/engines/lean/CMakeLists.txt", True),
        ("lean", "runtime/engines/lean/a_new_kernel.cpp", True),
        ("onnxruntime", "runtime/engines/onnxruntime/provider.cpp", True),
        ("lean", "conanfile.py", True),
        ("lean", "LICENSE", True),
        ("lean", "core/formats/bundle.py", True),  # the manifest's schema
        ("lean", "toolchains/bundle/layout.py", True),
        ("lean", "recipes/xnnpack/all/patches/0001-all-of-the-scalar-5x5-depthwise-kernel.patch", True),
        ("lean", "recipes/xnnpack_internals/all/conanfile.py", True),
        ("executorch", "runtime/engines/executorch/threads.cpp", True),
        ("onnxruntime", "recipes/onnxruntime/all/conandata.yml", True),
        ("native", "recipes/kleidiai/all/fortify/fortify.c", True),
        ("lean", "runtime/tests/test_inputs.cpp", False),
        ("lean", "runtime/fuzz/sweep.cpp", False),
        ("lean", "runtime/engines/onnxruntime/onnx_file.cpp", False),
        ("lean", "runtime/engines/executorch/threads.cpp", False),
        ("lean", "recipes/onnxruntime/all/conandata.yml", False),
        ("lean", "recipes/slipway_sources/test_package/xnnpack.cpp", False),
        ("onnxruntime", "recipes/xnnpack/all/conanfile.py", False),
        ("native", "runtime/runner/files/npy.cpp", False),
    ],
)
def test_a_file_counts_in_the_builds_that_it_goes_into(checkout: Path, kind: str, name: str, counts: bool) -> None:
    assert changes(checkout, kind, name) is counts


def test_every_file_counts_somewhere_and_conan_packs_what_counts() -> None:
    listed = ran(["git", "ls-files", "runtime", "recipes"], cwd=ROOT)
    # The recipe slipway is for other people's projects.
    runtime = (f"runtime/{name}" for name in ("bindings/", "examples/", "tests/", "fuzz/", ".clang-format"))
    apart = (*runtime, "recipes/doctest/", "recipes/slipway/")
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    shipped = {name for name in there if not name.startswith(apart) and "/test_package/" not in name}
    counted = {name for kind in inputs.SOURCES for name, _ in inputs.files(kind)}
    assert len(shipped) > 200
    assert shipped - counted == set()
    patterns = runpy.run_path(str(ROOT / "conanfile.py"))["SlipwayRuntimeConan"].exports_sources
    files = [file for file in [ROOT / "LICENSE", *(ROOT / "runtime").rglob("*")] if file.is_file()]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    packed = {name for pattern in patterns for name in fnmatch.filter(names, pattern)}
    packed -= {name for pattern in patterns if pattern[0] == "!" for name in fnmatch.filter(names, pattern[1:])}
    counted = {name for kind in inputs.SOURCES if kind != inputs.NATIVE for name, _ in inputs.files(kind)}
    assert packed == {name for name in counted if name.startswith("runtime/")} | {"LICENSE"}


def test_a_recipe_that_nothing_counts_stops_the_build() -> None:
    node = {"name": "xnnpack", "python_requires": {"slipway_sources/1.1#abc": {}}}
    graph = {"nodes": {"0": {"name": None}, "1": node, "2": {"name": "slipway-runtime", "python_requires": None}}}
    inputs.hold_against("lean", graph)
    with pytest.raises(BuildError, match="does not count recipes/xnnpack") as caught:
        inputs.hold_against("executorch", graph)
    assert caught.value.names == ("xnnpack",)
