"""What is kept and what goes: the cache, looked at where it is run from, ``./inv clean``, and a device's store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.files import sealed, write_atomic, write_json
from core.files.clean import clean
from core.paths import cache_dir
from deploy.store.gc import DAY, parse, plan
from toolchains.compilers import zig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    write_atomic(made / "bin/tool", "tool of 1", 0o755)
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


@pytest.mark.parametrize("name", ["zig", "stdio.h"])
def test_a_changed_zig_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    fetched: list[str] = []

    def install(new: Path, requirement: str, _digest: str, _shown: object) -> None:
        fetched.append(requirement)
        write_atomic(new / "ziglang/zig", b"\x7fELF zig")
        write_atomic(new / "ziglang/stdio.h", "int puts(const char*);\n")

    monkeypatch.setattr(zig, "_install", install)
    program = zig.program()
    assert zig.program() == program
    assert len(fetched) == 1
    good = program.with_name(name).read_bytes()
    change(program.with_name(name), bytes(len(good)))
    sealed._SEEN.clear()  # as in the next process
    assert zig.program() == program
    assert program.with_name(name).read_bytes() == good
    assert len(fetched) == 2
    assert f"something has changed ziglang/{name} in the cache" in capsys.readouterr().err


def _left(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_results_and_the_cache_go_and_a_users_own_files_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dist, cache = tmp_path / "dist", tmp_path / "cache"
    for name in ("linux-arm64/executorch/manifest.json", "linux-arm64/.executorch.built.json",
                 "programs/mlp-fp32/model.pte", "results/a.json", "matrix/default/matrix.json", "sweeps/agree.jsonl",
                 "tests/a", "notes/mine.txt"):  # fmt: skip
        write_atomic(dist / name, "x")
    store = cache_dir("devices", "local", "store")
    (store / "blob").write_text("x", encoding="utf-8")
    store.chmod(0o555)
    write_atomic(cache / "mine/file", "x")
    clean(cache=False, as_json=True)
    assert _left(dist) == ["notes/mine.txt"]
    assert len(_left(cache)) == 2
    gone = {Path(row["path"]).name for row in json.loads(capsys.readouterr().out)}
    assert gone == {"executorch", "programs", "results", "matrix", "sweeps", "tests"}
    clean(cache=True, as_json=True)
    assert _left(cache) == ["mine/file"]


NOW = 1_000 * DAY
A, B, C, M, N = ("abcde"[index] * 64 for index in range(5))


def lines_of(**ages: float) -> list[str]:
    """Three bundles of one file each (100 bytes), two programs (10 bytes); ages in days, 1 by default.

    With their ages, two folders of programs, too: ``p`` holds m and n, ``q`` holds n.
    """
    lines = [f"now {NOW}", "link current/t-e ../bundles/one", "link previous/t-e ../bundles/two"]
    for name, digest in (("one", A), ("two", B), ("three", C)):
        used = int(NOW - ages.get(name, 1) * DAY)
        lines += [f"folder 0 {used} 0 bundles/{name}", f"file 100 {used} 2 store/{digest}"]
        lines.append(f"of {digest} bundles/{name}/bin/x y")
    for name, digest in (("m", M), ("n", N)):
        lines.append(f"file 10 {int(NOW - ages.get(name, 1) * DAY)} 1 store/{digest}")
    for name, digests in (("p", (M, N)), ("q", (N,))):
        if name in ages:
            lines.append(f"folder 0 {int(NOW - ages[name] * DAY)} 0 programs/{name}")
            lines += [f"of {digest} programs/{name}/{index}" for index, digest in enumerate(digests)]
    return [*lines, "folder 0 0 0 runs/other", "file 5 0 1 incoming/x.part", "nonsense", "file x y z store/q"]


def test_what_the_device_lists_and_that_packed_weights_go_first() -> None:
    found = parse(lines_of())
    size = sum(entry.size for entry in (*found.blobs.values(), *found.weights.values()))
    assert (found.now, size, len(found.blobs)) == (NOW, 320, 5)
    assert found.files == {f"bundles/{name}/bin/x y": digest for name, digest in (("one", A), ("two", B), ("three", C))}
    assert found.links == {"current/t-e": "one", "previous/t-e": "two"}
    lines = [f"file {size} {NOW - age} 1 weights/{name}" for size, age, name in (
        (40, 5, f"{M}.t-e"), (30, 9, f"{N}.t-e"), (7, 1, f"{'f' * 64}.t-e"), (3, 1, f"{M}.t-e.4711.0.tmp"),
    )]  # fmt: skip
    found = parse([*lines_of(m=2, n=3), *lines])
    always = [f"weights/{'f' * 64}.t-e", f"weights/{M}.t-e.4711.0.tmp"]
    assert sorted(plan(found, max_bytes=1e9, max_days=30)) == sorted(always)
    assert sorted(plan(found, max_bytes=365, max_days=30)) == sorted([*always, f"weights/{N}.t-e"])
    assert sorted(plan(found, max_bytes=355, max_days=30, in_use={N})) == sorted([*always, f"weights/{M}.t-e"])
    assert sorted(plan(found, max_bytes=1e9, max_days=2.5)) == sorted([*always, f"weights/{N}.t-e", f"store/{N}"])


@pytest.mark.parametrize(("ages", "limits", "gone"), [
    ({}, {"max_bytes": 1e9, "max_days": 30}, []),
    ({"m": 31}, {"max_bytes": 1e9, "max_days": 30}, [f"store/{M}"]),
    ({"one": 99, "two": 99}, {"max_bytes": 0, "max_days": 1},
     ["bundles/three", f"store/{C}", f"store/{M}", f"store/{N}"]),
    ({"three": 31}, {"max_bytes": 1e9, "max_days": 30}, ["bundles/three", f"store/{C}"]),
    ({"m": 3, "n": 2}, {"max_bytes": 315, "max_days": 30}, [f"store/{M}"]),
    ({"m": 2, "n": 3}, {"max_bytes": 315, "max_days": 30}, [f"store/{N}"]),
    ({}, {"max_bytes": 250, "max_days": 30}, ["bundles/three", f"store/{C}", f"store/{M}", f"store/{N}"]),
    ({}, {"max_bytes": 0, "max_days": 30, "in_use": {"three", C, M, N}}, []),
    ({"m": -400}, {"max_bytes": 1e9, "max_days": 30}, []),  # the clock was set back
    # What a program holds stays with it, and programs go before bundles.
    ({"p": 1, "q": 1, "m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30}, []),
    ({"p": 31, "q": 1, "m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30}, ["programs/p", f"store/{M}"]),
    ({"p": 31, "q": 31, "m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30},
     ["programs/p", "programs/q", f"store/{M}", f"store/{N}"]),
    ({"p": 3, "q": 2}, {"max_bytes": 315, "max_days": 30}, ["programs/p", f"store/{M}"]),
    ({"p": 2, "q": 3}, {"max_bytes": 315, "max_days": 30},
     ["programs/q", "programs/p", f"store/{M}", f"store/{N}"]),
    ({"p": 1, "q": 1}, {"max_bytes": 0, "max_days": 30, "in_use": {"three", "p", C, M, N}}, ["programs/q"]),
])  # fmt: skip
def test_what_goes(ages: dict[str, float], limits: dict[str, Any], gone: list[str]) -> None:
    assert sorted(plan(parse(lines_of(**ages)), **limits)) == sorted(gone)
