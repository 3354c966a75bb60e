"""A user's own packages: those that are named as ours, and those that are installed and pinned. No network."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import models.request
from core.aside import NAMES, aside
from core.environment import bootstrap
from core.errors import ConfigError, ExportError, HostError
from core.files import write_atomic
from core.paths import ROOT
from models import zoo
from models.request import key, resolve
from models.users import packages
from models.users.users_code import Side, import_file, opened, users_code

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files below a folder, given as ``models__yolo="..."``; the folder."""

    def call(folder: str = "repo", **files: str) -> Path:
        for name, text in files.items():
            path = name.replace("__", "/").replace("/init", "/__init__")
            write_atomic(tmp_path / folder / f"{path}.py", textwrap.dedent(text))
        return tmp_path / folder

    return call


def run(file: Path, function: str = "make") -> Any:
    """What a function of a user's file returns, with Python's table of modules as it was afterwards."""
    before = {name: one for name, one in sys.modules.items() if name.partition(".")[0] in NAMES}
    side = Side(file)
    with side.entered():
        module = import_file(file)
    with side.entered():
        found = getattr(module, function)()
    assert before == {name: one for name, one in sys.modules.items() if name in before}
    assert not [one for one in sys.modules.values() if str(getattr(one, "__file__", "")).startswith(f"{file.parent}")]
    return found


def test_the_names_are_the_checkouts_and_a_file_beside_them_loads_none_twice() -> None:
    packages_there = {one.parent.name for one in ROOT.glob("*/__init__.py")}
    assert packages_there | {one.stem for one in ROOT.glob("*.py")} - {"conanfile"} == NAMES
    with Side(ROOT / "net.py").entered():
        with pytest.raises(ModuleNotFoundError):
            exec("import core.console.units", {"__name__": "net"})  # noqa: S102
        scope: dict[str, Any] = {"__name__": "net"}
        exec("from models.methods import Methods", scope)  # noqa: S102
    from models.methods import Methods

    assert scope["Methods"] is Methods


@pytest.mark.parametrize(
    ("name", "form"), [*((name, "package") for name in sorted(NAMES)), ("models", "folder"), ("models", "file")]
)
def test_a_user_imports_his_own(write: Write, name: str, form: str) -> None:
    files = {"package": {f"{name}__init": "", f"{name}__own": "X = 7"}, "folder": {f"{name}__own": "X = 7"}}
    if form == "file":
        repo = write(net=f"import {name}\ndef make(): return {name}.X", **{name: "X = 7"})
    else:
        repo = write(net=f"from {name}.own import X\ndef make(): return X", **files[form])
    assert run(repo / "net.py") == 7


def test_a_file_without_packages_of_its_own_uses_what_the_docs_offer(write: Write) -> None:
    from models.methods import Methods

    repo = write(
        net="from models.methods import Methods\ndef make(): return Methods",
        full="from slipway.models.methods import Methods\ndef make(): return Methods",
        ours="import core.console.units\ndef make(): return core",
    )
    assert run(repo / "net.py") is Methods
    assert run(repo / "full.py") is Methods
    with pytest.raises(ModuleNotFoundError, match="core"):
        run(repo / "ours.py")
    # Beside his own package of that name, too, unless that has such a module.
    write(models__init="")
    assert run(repo / "net.py") is Methods
    write(models__methods="Methods = 'his'")
    assert run(repo / "net.py") == "his"
    assert run(repo / "full.py") is Methods


def test_modules_of_two_users_files_are_their_own_and_nothing_is_left(write: Write) -> None:
    make = "from utils import X\ndef make():\n    from models.own import Y\n    return X, Y"
    one = write("one", net=make, utils="X = 1", models__own="Y = 1")
    two = write("two", net=make, utils="X = 2", models__own="Y = 2")
    outer, inner = Side(one / "net.py"), Side(two / "net.py")
    with outer.entered():
        first = import_file(one / "net.py")
        with inner.entered():
            assert import_file(two / "net.py").make() == (2, 2)
        assert first.make() == (1, 1)
        with inner.entered():
            assert sys.modules["utils"].X == 2
    assert "utils" not in sys.modules
    assert run(two / "net.py") == (2, 2)
    before = list(sys.meta_path), importlib.import_module, __builtins__
    with pytest.raises(ValueError, match="his"), aside(), aside():
        raise ValueError("his")
    assert before == (list(sys.meta_path), importlib.import_module, __builtins__)
    assert models.__name__ == zoo.load_zoo.__module__.partition(".")[0] == "models"


def test_a_file_in_a_package_imports_relatively(write: Write) -> None:
    repo = write(
        models__init="",
        models__nets__init="",
        models__nets__small="from ..parts import X\nfrom . import here\ndef make(): return X, here.Y",
        models__nets__here="from core.own import Y",
        models__parts="X = 1",
        core__own="Y = 2",
        tools__run="from .part import X\ndef make(): return X",
        tools__part="X = 3",
    )
    assert run(repo / "models/nets/small.py") == (1, 2)
    assert run(repo / "tools/run.py") == 3


def test_a_function_of_samples_is_loaded_in_the_same_way(write: Write) -> None:
    lazily = "def samples():\n    from core.own import X\n    return [X]"
    repo = write(data=f"import models\nassert models.his\n{lazily}", models__init="his = 1", core__own="X = 5")
    named = f"{repo / 'data.py'}:samples"
    with opened(named) as function:
        assert function() == [5]
    (repo / "core/own.py").unlink()
    with pytest.raises(ExportError, match="line 4 failed"), opened(named) as function:
        sys.modules.pop("core.own")
        function()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_names_of_ours_are_never_installed(write: Write, name: str) -> None:
    repo = write(net=f"import {name}.part", setup="")
    file = repo / "net.py"
    with pytest.raises(ExportError) as caught, Side(file).entered(), users_code(file, "Importing"):
        import_file(file)
    assert caught.value.hint.startswith(f"put your package {name} beside")


def test_the_exporters_own_packages_do_not_count_and_others_are_named() -> None:
    text = "# nets\ntimm==1.0.31  # images\n\ntorch>=2\nNumPy<3\nscikit_learn\n"
    assert packages.listed(text, "here") == ["scikit_learn", "timm==1.0.31"]
    file = Path("net.py")
    missing = ModuleNotFoundError("no", name="timm.models")
    assert packages.advice(missing, file) == "./inv models --add timm --model net.py"
    assert "opencv-python-headless" in packages.advice(ModuleNotFoundError("no", name="cv2"), file)
    assert packages.advice(ValueError("no"), file) == ""


@pytest.mark.parametrize("line", ["-r other.txt", "--index-url x", "net @ file:///tmp/x", "https://a/b.whl", "./net"])
def test_only_names_of_packages_are_installed(line: str) -> None:
    with pytest.raises(ConfigError, match="does not install") as caught:
        packages.listed(f"timm\n{line}\n", "requirements.txt")
    assert line in str(caught.value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "net.py"
    file.write_text("def make():\n    return None\n")
    return file


def test_requirements_are_in_the_key(model: Path) -> None:
    keys = [key(resolve(f"{model}:make"))]
    for text in ("timm\n", "timm==1.0\n"):
        (model.parent / "requirements.txt").write_text(text)
        keys.append(key(resolve(f"{model}:make")))
    lock = "timm==1.0 --hash=sha256:00\ntqdm==4.1 --hash=sha256:00\n"
    write_atomic(packages.folder_of(["timm==1.0"]) / "lock.txt", lock)
    keys.append(key(resolve(f"{model}:make")))
    assert packages.pins(["timm==1.0"]) == {"timm": "1.0", "tqdm": "4.1"}
    assert len(set(keys)) == 4
    assert resolve("mlp").packages == ()


def _pip(monkeypatch: pytest.MonkeyPatch, found: list[dict[str, Any]], code: int = 0) -> list[list[str]]:
    """Answer like pip's dry run; the commands are returned."""
    called = []

    def run(argv: list[Any], **_: Any) -> Any:
        called.append([str(word) for word in argv])
        limits = Path(argv[argv.index("-c") + 1]).read_text().splitlines()
        assert any(line.startswith("torch==") for line in limits)
        assert "tokenizers==0.1" not in limits, "another command's packages do not bind the model's"
        Path(argv[argv.index("--report") + 1]).write_text(json.dumps({"install": found}))
        return SimpleNamespace(returncode=code, stderr="WARNING: x\nERROR: ResolutionImpossible\n")

    monkeypatch.setattr(subprocess, "run", run)
    return called


def _found(name: str, version: str, sha256: str = "00") -> dict[str, Any]:
    hashes = {"sha256": sha256} if sha256 else {}
    return {"metadata": {"name": name, "version": version}, "download_info": {"archive_info": {"hashes": hashes}}}


def test_added_packages_are_pinned_beside_the_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = _pip(monkeypatch, [_found("timm", "1.0.31"), _found("tqdm", "4.70")])
    group = model.parent / "group" / "tokenizers-0.1.dist-info"
    write_atomic(group / "METADATA", "Name: tokenizers\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(group.parent))
    installed = []

    def install(lock: Path, venv: Path, *_: object) -> None:
        installed.append((lock.read_text(), venv))

    monkeypatch.setattr(bootstrap, "install_listed", install)
    (model.parent / "requirements.txt").write_text("# mine\nTimm==0.9\ntqdm\n")
    assert packages.add(["timm"], model).read_text() == "# mine\ntqdm\ntimm==1.0.31\n"
    lock = "timm==1.0.31 --hash=sha256:00\ntqdm==4.70 --hash=sha256:00\n"
    assert installed == [(lock, Path(sys.prefix))]
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


def test_one_process_has_one_set_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_entered", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    packages.enter([])
    packages.enter(["timm"])
    packages.enter(["timm"])
    assert sys.path[-1] == str(packages.folder_of(["timm"]))
    assert sys.path.count(sys.path[-1]) == 1
    with pytest.raises(ExportError, match="different requirements"):
        packages.enter(["torchvision"])
