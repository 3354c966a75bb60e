"""``./inv doctor --cache``: every sealed folder is read, and what is damaged is named with what to type."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from core.errors import HostError
from core.files import sealed
from toolchains import seals

FOLDERS = ("tools/zig 1", "debian/trixie-amd64/trees/qemu", "images/pi", "toolchains/libstdcxx/arm64")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    for name in FOLDERS:
        folder = tmp_path / name
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/program").write_bytes(os.urandom(100))
        (folder / "notes").write_text("notes")
        sealed.seal(folder)
    (tmp_path / "tools/not sealed").mkdir()
    (tmp_path / "conan/p").mkdir(parents=True)
    return tmp_path


def rot(file: Path) -> None:
    """One bit changes, and nothing that shows it: the seal is made to fit the new times."""
    folder = file.parent.parent
    raw = bytearray(file.read_bytes())
    raw[50] ^= 1
    file.write_bytes(raw)
    text = json.loads((folder / sealed.SEAL).read_text(encoding="utf-8"))
    listing = sealed._listing(folder)
    for name, entry in text["files"].items():
        entry[1] = listing[name]
    text["summary"] = sealed._summary(listing)
    (folder / sealed.SEAL).write_text(json.dumps(text, indent=2), encoding="utf-8")


def test_a_cache_as_it_was_made(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seals.report(as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [(Path(row["folder"]).relative_to(cache).as_posix(), row["damaged"]) for row in rows] == [
        (name, []) for name in sorted(FOLDERS)
    ]
    assert all(row["bytes"] == 105 for row in rows)
    seals.report(as_json=False)
    assert capsys.readouterr().out.count("as it was made") == 4


def test_a_bit_that_changed_below_the_file_system_is_found(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache / FOLDERS[0]
    rot(folder / "bin/program")
    assert sealed.whole(folder), "the quick look before a program is run cannot see it"
    with pytest.raises(HostError, match="1 of 4 sealed folders of the cache are damaged") as caught:
        seals.report(as_json=False)
    assert "zig 1: DAMAGED: bin/program" in caught.value.cause
    assert caught.value.names == (str(folder),)
    typed = shlex.split(caught.value.hint.partition(";")[0])
    assert typed == ["rm", "-r", str(folder)]
    assert capsys.readouterr().out.count("DAMAGED: bin/program") == 1


def test_files_that_are_missing_added_or_unreadable(cache: Path) -> None:
    (cache / FOLDERS[1] / "notes").unlink()
    for index in range(4):
        (cache / FOLDERS[2] / f"more{index}").touch()
    (cache / FOLDERS[3] / sealed.SEAL).write_text("{")
    found = {Path(one.folder).name: one.damaged for one in seals.look()}
    assert found == {
        "zig 1": (), "qemu": ("notes",), "pi": ("more0", "more1", "more2", "more3"), "arm64": (sealed.SEAL,),
    }  # fmt: skip
    with pytest.raises(HostError, match="3 of 4") as caught:
        seals.report(as_json=True)
    assert "more0, more1, more2 and 1 more" in caught.value.cause


def test_a_disk_that_cannot_be_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(file: Path) -> str:
        raise OSError(5, "Input/output error", str(file))

    monkeypatch.setattr(sealed, "sha256_file", unreadable)
    found = [one.damaged for one in seals.look()]
    assert len(found) == 4
    assert all("Input/output error" in damaged[0] for damaged in found)
