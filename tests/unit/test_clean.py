"""``./inv clean`` removes what is Slipway's, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.files.clean import clean
from core.paths import cache_dir


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SLIPWAY_CACHE", str(folder))
    return folder


def _fill(dist: Path, cache: Path) -> None:
    for name in ("linux-arm64/executorch/manifest.json", "linux-arm64/.executorch.built.json",
                 "programs/mlp-fp32/model.pte", "results/a.json", "matrix/default/matrix.json",
                 "sweeps/agree.jsonl", "tests/a",
                 "notes/mine.txt"):  # fmt: skip
        file = dist / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x", encoding="utf-8")
    store = cache_dir("devices", "local", "store")
    (store / "blob").write_text("x", encoding="utf-8")
    store.chmod(0o555)
    (cache / "mine").mkdir()
    (cache / "mine" / "file").write_text("x", encoding="utf-8")


def _left(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_results_and_the_cache_go_and_a_users_own_files_stay(
    dist: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(dist, cache)
    clean(cache=False, as_json=True)
    assert _left(dist) == ["notes/mine.txt"]
    assert len(_left(cache)) == 2
    assert {Path(row["path"]).name for row in json.loads(capsys.readouterr().out)} == {
        "executorch", "programs", "results", "matrix", "sweeps", "tests"
    }  # fmt: skip
    clean(cache=True, as_json=True)
    assert _left(cache) == ["mine/file"]
