"""Packages of a user's model: which lines count, where they are installed, and what is pinned. No network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.environment import bootstrap
from core.errors import ConfigError, ExportError, HostError
from models.request import key, resolve
from models.users import packages


def test_the_exporters_own_packages_and_comments_do_not_count() -> None:
    text = "# nets\ntimm==1.0.31  # images\n\ntorch>=2\nNumPy<3\nscikit_learn\n"
    assert packages.listed(text, "here") == ["scikit_learn", "timm==1.0.31"]


@pytest.mark.parametrize("line", ["-r other.txt", "--index-url x", "net @ file:///tmp/x", "https://a/b.whl", "./net"])
def test_only_names_of_packages_are_installed(line: str) -> None:
    with pytest.raises(ConfigError, match="does not install") as caught:
        packages.listed(f"timm\n{line}\n", "requirements.txt")
    assert line in str(caught.value)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file, and a cache of the test's own."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "net.py"
    file.write_text("def make():\n    return None\n")
    return file


def test_requirements_are_in_the_key(model: Path) -> None:
    keys = [key(resolve(f"{model}:make"))]
    for text in ("timm\n", "timm==1.0\n"):
        (model.parent / "requirements.txt").write_text(text)
        keys.append(key(resolve(f"{model}:make")))
    folder = packages.folder_of(["timm==1.0"])
    folder.mkdir(parents=True)
    (folder / "lock.txt").write_text("timm==1.0 --hash=sha256:00\ntqdm==4.1 --hash=sha256:00\n")
    keys.append(key(resolve(f"{model}:make")))
    assert packages.pins(["timm==1.0"]) == {"timm": "1.0", "tqdm": "4.1"}
    assert len(set(keys)) == 4
    assert resolve("mlp").packages == ()


def _pip(
    monkeypatch: pytest.MonkeyPatch,
    found: list[dict[str, Any]],
    code: int = 0,
    said: str = "ERROR: ResolutionImpossible",
    sources: bool = False,
) -> list[list[str]]:
    """Answer like pip's dry run, and whether the index has sources; the commands are returned."""
    called = []

    def run(argv: list[Any], **_: Any) -> Any:
        called.append([str(word) for word in argv])
        if "index" in argv:
            return SimpleNamespace(returncode=0 if sources else 1)
        Path(argv[argv.index("--report") + 1]).write_text(json.dumps({"install": found}))
        return SimpleNamespace(returncode=code, stderr=f"WARNING: x\n{said}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return called


def _found(name: str, version: str, sha256: str = "00") -> dict[str, Any]:
    hashes = {"sha256": sha256} if sha256 else {}
    return {"metadata": {"name": name, "version": version}, "download_info": {"archive_info": {"hashes": hashes}}}


def test_added_packages_are_pinned_beside_the_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = _pip(monkeypatch, [_found("timm", "1.0.31"), _found("tqdm", "4.70")])
    installed = []

    def install(lock: Path, venv: Path, target: Path, label: str) -> None:
        installed.append((lock.read_text(), venv, target.name, label))

    monkeypatch.setattr(bootstrap, "install_listed", install)
    (model.parent / "requirements.txt").write_text("# mine\nTimm==0.9\ntqdm\n")
    file = packages.add(["timm"], model)
    assert file.read_text() == "# mine\ntqdm\ntimm==1.0.31\n"
    ((lock, venv, _, _),) = installed
    assert lock == "timm==1.0.31 --hash=sha256:00\ntqdm==4.70 --hash=sha256:00\n"
    assert venv == Path(sys.prefix)
    assert called[0][-2:] == ["timm", "tqdm"]
    assert "--only-binary=:all:" in called[0]
    assert packages.install(packages.wanted(model)).is_dir()
    assert len(installed) == 1, "it is there"


def test_what_pip_cannot_resolve_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, [], code=1)
    with pytest.raises(HostError, match="that fit the exporter") as caught:
        packages.add(["timm==0.0"], model)
    assert caught.value.cause == "ERROR: ResolutionImpossible"
    assert not (model.parent / "requirements.txt").exists()
    _pip(monkeypatch, [_found("timm", "1.0", "")])
    with pytest.raises(HostError, match="no SHA-256"):
        packages.add(["timm"], model)


@pytest.mark.parametrize(
    ("wanted", "needed", "by"), [("docopt", "docopt", ""), ("num2words", "docopt>=0.6.2", ", which num2words needs")]
)
def test_what_has_only_sources_is_named(
    wanted: str, needed: str, by: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other versions would not help; of a package that is not there at all nothing is claimed."""
    needs = f" (from {wanted})" if by else ""
    said = (
        f"ERROR: Could not find a version that satisfies the requirement {needed}{needs} (from versions: none)\n"
        f"ERROR: No matching distribution found for {needed}"
    )
    called = _pip(monkeypatch, [], code=1, said=said, sources=True)
    with pytest.raises(HostError) as caught:
        packages.add([wanted], model)
    assert caught.value.what == f"There is no wheel for {needed}{by}."
    assert "other versions" not in caught.value.hint
    assert called[1][-2:] == ["docopt", "--no-binary=:all:"]
    _pip(monkeypatch, [], code=1, said=said)
    with pytest.raises(HostError, match="that fit the exporter"):
        packages.add([wanted], model)


def test_one_process_has_one_set_of_packages(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_entered", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    packages.enter([])
    packages.enter(["timm"])
    packages.enter(["timm"])
    assert sys.path[-1] == str(packages.folder_of(["timm"]))
    assert sys.path.count(sys.path[-1]) == 1
    with pytest.raises(ExportError, match="different requirements"):
        packages.enter(["torchvision"])


def test_a_missing_module_names_its_package() -> None:
    file = Path("net.py")
    assert packages.advice(ModuleNotFoundError("no", name="timm.models"), file) == (
        "./inv models.add-package timm --model net.py"
    )
    assert "opencv-python-headless" in packages.advice(ModuleNotFoundError("no", name="cv2"), file)
    assert packages.advice(ValueError("no"), file) == ""
