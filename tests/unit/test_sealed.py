"""The cache: looked at again where it is run from and by ``./inv doctor --cache``; and what ``./inv clean`` removes."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from core.errors import HostError
from core.files import sealed, write_json
from core.files.clean import clean
from core.paths import cache_dir
from toolchains import doctor
from toolchains.compilers import zig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "bin").mkdir(parents=True)
    (made / "bin/tool").write_bytes(b"tool of 1")
    (made / "bin/tool").chmod(0o755)
    (made / "bin/link").symlink_to("tool")
    (made / "read me").write_text("text", encoding="utf-8")
    sealed.seal(made)
    return made


def change(file: Path, data: bytes) -> None:
    """Other bytes, as many, and the time of last change as it was."""
    before = file.stat()
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_is_untouched_is_whole(folder: Path, tmp_path: Path) -> None:
    assert sealed.whole(folder)
    assert sealed.damage(folder) == []
    assert sealed.damage(folder, full=True) == []
    assert not sealed.whole(tmp_path)
    assert not sealed.whole(tmp_path / "nothing")
    write_json(folder / sealed.SEAL, {"format": 0})
    assert sealed.damage(folder) == [sealed.SEAL]


def test_every_change_is_seen(folder: Path) -> None:
    change(folder / "bin/tool", b"tool of 2")
    assert sealed.damage(folder) == ["bin/tool"]
    assert not sealed.whole(folder)
    (folder / "bin/more").write_bytes(b"")
    (folder / "read me").unlink()
    (folder / "bin/link").unlink()
    (folder / "bin/link").symlink_to("/bin/sh")
    (folder / "bin/tool").chmod(0o644)
    assert sealed.damage(folder) == ["bin/link", "bin/more", "bin/tool", "read me"]


def put_zig(monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A zig of two files, and how often it was fetched."""
    fetched: list[str] = []

    def install(new: Path, requirement: str, _digest: str, _shown: object) -> None:
        fetched.append(requirement)
        (new / "ziglang").mkdir()
        (new / "ziglang/zig").write_bytes(b"\x7fELF zig")
        (new / "ziglang/stdio.h").write_bytes(b"int puts(const char*);\n")

    monkeypatch.setattr(zig, "_install", install)
    return zig.program(), fetched


@pytest.mark.parametrize("name", ["zig", "stdio.h"])
def test_a_changed_zig_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    program, fetched = put_zig(monkeypatch)
    assert zig.program() == program
    assert len(fetched) == 1
    good = program.with_name(name).read_bytes()
    change(program.with_name(name), bytes(len(good)))
    sealed._SEEN.clear()  # as in the next process
    assert zig.program() == program
    assert program.with_name(name).read_bytes() == good
    assert len(fetched) == 2
    assert f"something has changed ziglang/{name} of zig" in capsys.readouterr().err


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


def test_a_bit_that_changed_below_the_file_system_is_found(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache / FOLDERS[0]
    rot(folder / "bin/program")
    assert sealed.whole(folder), "the quick look before a program is run cannot see it"
    with pytest.raises(HostError, match="1 of 4 sealed folders of the cache are damaged") as caught:
        doctor.report_cache(as_json=False)
    assert "zig 1: DAMAGED: bin/program" in caught.value.cause
    assert caught.value.names == (str(folder),)
    typed = shlex.split(caught.value.hint.partition(";")[0])
    assert typed == ["rm", "-r", str(folder)]
    assert capsys.readouterr().out.count("DAMAGED: bin/program") == 1


def test_damage_of_other_kinds_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(file: Path) -> str:
        raise OSError(5, "Input/output error", str(file))

    with monkeypatch.context() as patch:
        patch.setattr(sealed, "sha256_file", unreadable)
        assert ["Input/output error" in one.damaged[0] for one in doctor.look()] == [True] * 4
    (cache / FOLDERS[1] / "notes").unlink()
    for index in range(4):
        (cache / FOLDERS[2] / f"more{index}").touch()
    (cache / FOLDERS[3] / sealed.SEAL).write_text("{")
    found = {Path(one.folder).name: one.damaged for one in doctor.look()}
    assert found == {
        "zig 1": (), "qemu": ("notes",), "pi": ("more0", "more1", "more2", "more3"), "arm64": (sealed.SEAL,),
    }  # fmt: skip
    with pytest.raises(HostError, match="3 of 4") as caught:
        doctor.report_cache(as_json=True)
    assert "more0, more1, more2 and 1 more" in caught.value.cause


def _fill(dist: Path, cache: Path) -> None:
    for name in ("linux-arm64/executorch/manifest.json", "linux-arm64/.executorch.built.json",
                 "programs/mlp-fp32/model.pte", "results/a.json", "matrix/default/matrix.json", "sweeps/agree.jsonl",
                 "tests/a", "notes/mine.txt"):  # fmt: skip
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dist, cache = tmp_path / "dist", tmp_path / "cache"
    _fill(dist, cache)
    clean(cache=False, as_json=True)
    assert _left(dist) == ["notes/mine.txt"]
    assert len(_left(cache)) == 2
    assert {Path(row["path"]).name for row in json.loads(capsys.readouterr().out)} == {
        "executorch", "programs", "results", "matrix", "sweeps", "tests"
    }  # fmt: skip
    clean(cache=True, as_json=True)
    assert _left(cache) == ["mine/file"]
