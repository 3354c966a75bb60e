"""Real builds of native packages, from source."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from core.errors import BuildError
from core.files import locked
from core.formats.bundle import MANIFEST, SBOM, Native
from core.paths import ROOT, cache_dir
from tests.support.processes import descendants, gone, marked, ran, wait_for, well
from toolchains.bundle import conan, conan_packages, native
from toolchains.debian import packages as debian
from toolchains.targets import get_target
from verify.suite import shared

pytestmark = pytest.mark.build

XNNPACK = ROOT / "recipes" / "xnnpack" / "all"
LIBRARIES = {"libXNNPACK.a", "libmicrokernels-prod.a", "libpthreadpool.a", "libcpuinfo.a"}
HEADERS = {"xnnpack.h", "pthreadpool.h", "cpuinfo.h", "fxdiv.h", "flatbuffers/flatbuffers.h"}


@pytest.fixture(scope="module", params=["linux-x86_64", "linux-arm64"])
def built(request: pytest.FixtureRequest) -> Native:
    return shared.native(request.param)


def test_everything_is_there_and_said(built: Native) -> None:
    manifest = built.manifest
    arm = get_target(manifest.target).machine == "aarch64"
    libraries = {entry.path.removeprefix("lib/") for entry in manifest.files if entry.path.startswith("lib/")}
    assert libraries == LIBRARIES | ({"libkleidiai.a", "libkleidiai_fortify.a"} if arm else set())
    assert {f"include/{name}" for name in HEADERS} <= {entry.path for entry in manifest.files}
    names = {package.partition("/")[0] for package in manifest.packages}
    assert names == {"xnnpack", "pthreadpool", "cpuinfo", "fxdiv", "flatbuffers"} | ({"kleidiai"} if arm else set())
    assert manifest.kleidiai.startswith("kleidiai/") is arm
    for name in names:
        licences = [entry for entry in manifest.files if entry.path.startswith(f"licenses/{name}/")]
        assert len(licences) >= 2, name  # its own, and the record of its sources
    there = {file.relative_to(built.path).as_posix() for file in built.path.rglob("*") if file.is_file()}
    assert there == {entry.path for entry in manifest.files} | {MANIFEST}


def test_the_bill_of_materials_is_valid_and_complete(built: Native) -> None:
    text = (built.path / SBOM).read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None, "CycloneDX's own schema"
    components = {item["name"]: item for item in json.loads(text)["components"]}
    for package in built.manifest.packages:
        name, _, version = package.partition("/")
        component = components[name]
        assert component["version"] == version
        assert component["licenses"]
        assert "?rrev=" in component["purl"]
        source = json.loads((built.path / "licenses" / name / "source.json").read_text(encoding="utf-8"))
        digests = [item["content"] for ref in component["externalReferences"] for item in ref.get("hashes", [])]
        assert (source["place"], digests) == ("debian", [source["sha256"]])
    for entry in built.manifest.files:
        if entry.path != SBOM:
            assert components[entry.path]["hashes"] == [{"alg": "SHA-256", "content": entry.sha256}]


def test_ctrl_c_leaves_nothing_behind(dist: Path, tmp_path: Path) -> None:
    shared.native("linux-x86_64")
    code = "from toolchains.bundle.native import build_native; build_native('linux-x86_64', force=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert child.stderr is not None
    assert any(line.strip() == "xnnpack/cci.20241108" for line in child.stderr)
    # Other tests build there, too; what this child starts has its environment.
    builds, own = str(conan.home() / "p" / "b"), f"TMPDIR={tmp_path}"
    wait_for(lambda: marked(builds, own), 900, child)
    begun = set(marked(builds)) & descendants(child.pid)  # all its own, whatever their environment
    assert begun
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=120)
    assert child.returncode != 0
    assert list(dist.rglob("*.a")) == []
    assert list(tmp_path.glob("slipway-*")) == []
    assert gone(builds, setting=own)
    assert not begun & set(marked(builds))
    # What was packaged before is still there: this takes seconds and compiles nothing.
    assert native.build_native("linux-x86_64").manifest.packages


def test_the_committed_lockfile_is_true() -> None:
    """`python -m toolchains.bundle.conan_packages` writes it again after a change of a recipe."""
    assert conan_packages.LOCKED.read_text(encoding="utf-8") == conan_packages.current()


def test_packages_made_elsewhere_serve_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine keeps its cache elsewhere and makes compilers of its own: the packages' identity is the same."""
    shared.native("linux-x86_64")
    log, saved, here = tmp_path / "log", tmp_path / "packages.tgz", cache_dir()
    cpuinfo = "cpuinfo/cci.20250905"
    with locked(conan.LOCK):
        conan.conan(["cache", "save", f"{cpuinfo}:*", f"--file={saved}"], log=log)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "elsewhere"))
    for name in ("tools", "debian", "zig"):  # downloads, which need not be made again
        (cache_dir() / name).symlink_to(here / name)
    with locked(conan.LOCK):
        target = get_target("linux-x86_64")
        assert str(here) not in conan.profile(target).read_text(encoding="utf-8")
        words = conan_packages.words(target, "", log, "debian")
        words += [f"--requires={cpuinfo}", "--build=never", f"--output-folder={tmp_path}", "--format=json"]
        with pytest.raises(BuildError, match="Missing"):
            conan.conan(["install", *words], log=log)
        conan.conan(["cache", "restore", saved], log=log)
        text = conan.conan(["install", *words], log=log)
    (node,) = (node for node in json.loads(text)["graph"]["nodes"].values() if node["name"] == "cpuinfo")
    assert node["binary"] == "Cache"


def offline(*words: str, cwd: Path = ROOT) -> str:
    """Run a command in a network namespace without interfaces; what it says."""
    done = well(ran(["unshare", "--map-root-user", "--net", *words], cwd=cwd, env=conan._environment()))
    return done.stdout + done.stderr


def test_configuring_and_building_reach_no_network(tmp_path: Path) -> None:
    """Sources are there; without any network a package is made of them, and XNNPACK is configured."""
    shared.native("linux-x86_64")
    log, recipe = tmp_path / "log", tmp_path / "xnnpack"
    (pins,) = yaml.safe_load((XNNPACK / "conandata.yml").read_text(encoding="utf-8"))["sources"].values()
    shutil.copytree(XNNPACK, recipe)
    wanted = pins["debian"]
    tarball = debian.source(wanted["suite"], wanted["package"], wanted["file"], wanted["sha256"])
    shutil.unpack_archive(tarball, recipe / "src")
    python = [sys.executable, "-m", "conans.conan", "install"]
    with conan_packages.building():  # what others compile with is made again
        words = conan_packages.words(get_target("linux-x86_64"), "", log, "debian")
        made = ["--requires=cpuinfo/cci.20250905", "--build=cpuinfo/*", f"--output-folder={tmp_path}"]
        assert "Package '" in offline(*python, *made, *words)
        offline(*python, str(recipe), "--version=cci.20241108", *words)
        said = offline("cmake", "--preset", "conan-release", cwd=recipe / "src")
    assert "Configuring done" in said
    assert "Downloading" not in said
