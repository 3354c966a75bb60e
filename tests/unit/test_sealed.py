"""What is in the cache is looked at again where it is run from: seals, and those who use them."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from core.files import sealed, write_json
from toolchains.compilers import ccache, zig


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


def test_what_is_untouched_is_whole(folder: Path) -> None:
    assert sealed.whole(folder)
    assert sealed.damage(folder) == []
    assert sealed.damage(folder, full=True) == []


def test_a_folder_without_a_seal_is_not_whole(tmp_path: Path) -> None:
    assert not sealed.whole(tmp_path)
    assert not sealed.whole(tmp_path / "nothing")


def test_other_bytes_of_the_same_size_and_time_are_seen(folder: Path) -> None:
    change(folder / "bin/tool", b"tool of 2")
    assert sealed.damage(folder) == ["bin/tool"]
    assert not sealed.whole(folder)


def test_more_files_fewer_files_other_links_and_modes_are_seen(folder: Path) -> None:
    (folder / "bin/more").write_bytes(b"")
    (folder / "read me").unlink()
    (folder / "bin/link").unlink()
    (folder / "bin/link").symlink_to("/bin/sh")
    (folder / "bin/tool").chmod(0o644)
    assert sealed.damage(folder) == ["bin/link", "bin/more", "bin/tool", "read me"]


def test_a_copy_is_read_once_and_then_known(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    assert sealed.whole(copy)
    monkeypatch.setattr(sealed, "sha256_file", lambda *_: pytest.fail("read again"))
    assert sealed.damage(copy) == []
    assert sealed.damage(folder) == []


def test_a_damaged_seal_is_damage(folder: Path) -> None:
    write_json(folder / sealed.SEAL, {"format": 0})
    assert sealed.damage(folder) == [sealed.SEAL]


def put_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A zig of two files, and how often it was fetched."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    fetched: list[str] = []

    def install(new: Path, requirement: str, _digest: str, _shown: object) -> None:
        fetched.append(requirement)
        (new / "ziglang").mkdir()
        (new / "ziglang/zig").write_bytes(b"\x7fELF zig")
        (new / "ziglang/stdio.h").write_bytes(b"int puts(const char*);\n")
        rows = "".join(
            f"ziglang/{name},sha256={record((new / 'ziglang' / name).read_bytes())},1\n" for name in ("zig", "stdio.h")
        )
        (new / "ziglang-1.dist-info").mkdir()
        (new / "ziglang-1.dist-info/RECORD").write_text(rows + "ziglang-1.dist-info/RECORD,,\n", encoding="utf-8")

    monkeypatch.setattr(zig, "_install", install)
    return zig.program(), fetched


def record(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize("name", ["zig", "stdio.h"])
def test_a_changed_zig_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    program, fetched = put_zig(tmp_path, monkeypatch)
    assert zig.program() == program
    assert len(fetched) == 1
    good = program.with_name(name).read_bytes()
    change(program.with_name(name), bytes(len(good)))
    sealed._SEEN.clear()  # as in the next process
    assert zig.program() == program
    assert program.with_name(name).read_bytes() == good
    assert len(fetched) == 2
    assert f"something has changed ziglang/{name} of zig" in capsys.readouterr().err


def test_a_zig_of_before_is_compared_with_its_wheels_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, fetched = put_zig(tmp_path, monkeypatch)
    seal = program.parent.parent / sealed.SEAL
    seal.unlink()
    assert zig.program() == program
    assert (len(fetched), seal.is_file()) == (1, True)
    seal.unlink()
    program.write_bytes(b"\x7fELF gun")
    assert zig.program().read_bytes() == b"\x7fELF zig"
    assert len(fetched) == 2


def test_a_changed_launcher_of_compilers_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ccache, "_program", lambda: ["/usr/bin/ccache"])
    launcher = ccache._launcher(tmp_path)
    assert launcher is not None
    good = launcher.read_bytes()
    change(launcher, bytes(len(good)))
    assert ccache._launcher(tmp_path) == launcher
    assert launcher.read_bytes() == good
