"""What recipes read out of sources, and the recipe of ONNX Runtime: its pins, and the one change to a library."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conan.errors import ConanException

from core.paths import ROOT
from verify.operators import coverage

RECIPES = ROOT / "recipes"


def test_sources_and_patches_are_the_librarys() -> None:
    pins = [
        yaml.safe_load((RECIPES / name / "all" / "conandata.yml").read_text(encoding="utf-8"))["sources"]
        for name in ("xnnpack", "xnnpack_internals", "xnnpack_sources")
    ]
    assert pins[0] == pins[1] == pins[2]
    ours, librarys = (RECIPES / name / "all" for name in ("xnnpack_sources", "xnnpack"))
    data = [yaml.safe_load((folder / "conandata.yml").read_text(encoding="utf-8")) for folder in (ours, librarys)]
    assert data[0]["patches"] == data[1]["patches"]


SPEC = importlib.util.spec_from_file_location("slipway_recipe", RECIPES / "slipway" / "all" / "conanfile.py")
assert SPEC is not None
assert SPEC.loader is not None
slipway = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(slipway)


def test_the_operators_of_the_package_are_the_engines() -> None:
    rows = [row["operators"] for row in coverage.OPERATORS.rows() if not row["kernel, and its test"].startswith("no")]
    named = set(re.findall(r"`([^`]+)`", " ".join(rows)))
    assert {name.replace("/", "::") for name in slipway.kernels_in(ROOT / "runtime")} >= named
    assert len(named) > 200


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("all", ""),
        ("none", ""),
        ("aten/add.out", ""),
        ("aten/add.out+aten/mul.out", ""),
        ("aten/ad.out", "operators: there is no 'aten/ad.out'. did you mean aten/add.out? It takes"),
        ("aten/add.out+zzz", "operators: there is no 'zzz'. It takes all, none, or names with + between them: aten/"),
        ("", "operators: there is no ''."),
    ],
)
def test_an_operator_that_the_engine_lacks_is_refused(value: str, said: str) -> None:
    found = slipway.refused("operators", value, slipway.kernels_in(ROOT / "runtime"))
    assert found.startswith(said)
    assert bool(found) == bool(said)


FOLDER = ROOT / "recipes/onnxruntime/all"
VERSION = "1.21.0"
DATA: dict[str, Any] = yaml.safe_load((FOLDER / "conandata.yml").read_text(encoding="utf-8"))
DEBIAN = {"x86_64": "amd64", "armv8": "arm64", "armv7hf": "armhf"}


def load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("recipe", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recipe() -> Any:
    return load(FOLDER / "conanfile.py").OnnxruntimeConan


def test_every_architecture_has_the_same_packages_of_its_own() -> None:
    packages = {arch: DATA["packages"][VERSION][arch] for arch in DEBIAN}
    names = {frozenset(file.split("_")[0] for file in files) for files in packages.values()}
    assert len(names) == 1
    assert {"libonnxruntime1.21", "libonnxruntime-dev", "libc6", "libstdc++6", "libxnnpack0.20241108"} <= names.pop()
    for arch, files in packages.items():
        assert all(file.endswith(f"_{DEBIAN[arch]}.deb") and len(digest) == 64 for file, digest in files.items())


def test_the_fix_checks_the_cpu_before_the_initialiser_runs() -> None:
    import capstone

    (fix,) = DATA["fixes"][VERSION]["armv8"]
    code = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    old = [(i.mnemonic, i.op_str) for i in code.disasm(bytes.fromhex(fix["old"]), fix["offset"])]
    new = [(i.mnemonic, i.op_str) for i in code.disasm(bytes.fromhex(fix["new"]), fix["offset"])]
    entry = fix["offset"] + 24  # behind six instructions of padding
    assert [name for name, _ in old] == ["nop"] * 6 + ["bti", "adrp"]
    assert new == [
        ("mrs", "x0, id_aa64pfr0_el1"),
        ("tbnz", f"w0, #0x14, #{fix['offset'] + 12:#x}"),
        ("ret", ""),
        old[7],  # what the jump below took the place of
        ("b", f"#{entry + 8:#x}"),
        ("nop", ""),
        ("bti", "c"),
        ("b", f"#{fix['offset']:#x}"),
    ]


def test_a_library_that_is_not_the_one_the_fix_is_for_is_refused(recipe: Any, tmp_path: Path) -> None:
    fix = {"file": "a.so", "offset": 2, "old": "0102", "new": "ffee"}
    (tmp_path / "a.so").write_bytes(b"\0\0\1\2\0")
    recipe._fix(tmp_path, **fix)
    assert (tmp_path / "a.so").read_bytes() == b"\0\0\xff\xee\0"
    with pytest.raises(ConanException, match="is not the library"):
        recipe._fix(tmp_path, **fix)


def test_npm_brings_the_pinned_package_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = load(FOLDER.parent / "android/conanfile.py").OnnxruntimeConan
    sources = SimpleNamespace(module=load(ROOT / "recipes/slipway_sources/all/conanfile.py"))
    folder, cache = tmp_path / "folder", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    pinned = {"package": "a@1", "file": "a-1.tgz", "sha256": hashlib.sha256(b"a@1\n").hexdigest()}
    itself = SimpleNamespace(
        _archive=pinned, _sha256=cls._sha256, python_requires={"slipway_sources": sources},
        conf=SimpleNamespace(get=lambda *_, **__: str(cache)), output=SimpleNamespace(info=print),
    )  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\nfor last; do :; done\necho $last > "${4#*=}/a-1.tgz"\n', encoding="utf-8")
    npm.chmod(0o755)
    assert cls._fetched(itself, folder).read_bytes() == b"a@1\n"
    npm.write_text("#!/bin/sh\necho down >&2\nexit 1\n", encoding="utf-8")
    assert cls._fetched(itself, folder) == cache / "a-1.tgz"
    (cache / "a-1.tgz").write_bytes(b"another")
    with pytest.raises(ConanException, match=r"npm could not fetch a-1\.tgz:\ndown"):
        cls._fetched(itself, folder)
    npm.write_text('#!/bin/sh\necho other > "${4#*=}/a-1.tgz"\n', encoding="utf-8")
    with pytest.raises(ConanException, match="not the file that was pinned"):
        cls._fetched(itself, folder)
