"""What an export depends on besides its request: seen while the user's code runs, and compared later. No torch."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models.users import depends
from models.users.watching import Watch, watching


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], dict[str, dict[str, Any]]]]:
    """Run lines as a user's file and give what they depend on."""
    source = tmp_path / "user" / "net.py"
    source.parent.mkdir()
    path = list(sys.path)

    def call(lines: str) -> dict[str, dict[str, Any]]:
        source.write_text(textwrap.dedent(lines))
        before = set(sys.modules)
        watch = Watch(source)
        with watching(watch):
            exec(compile(source.read_text(), source, "exec"), {"__name__": "net", "__file__": str(source)})  # noqa: S102
            found = watch.found()
            own = watch.modules()
        for name in own:
            del sys.modules[name]
        assert set(own) <= set(sys.modules) - before | set(own)
        parsed: dict[str, dict[str, Any]] = json.loads(json.dumps(found))
        return parsed

    yield call
    sys.path[:] = path


Run = Callable[[str], dict[str, dict[str, Any]]]


def test_files_that_are_read_are_noted(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"0" * 256)
    found = run(
        f"""
        import os, pathlib, numpy
        open({str(tmp_path / "a")!r}).close()
        (pathlib.Path({str(tmp_path)!r}) / "b").read_bytes()
        numpy.fromfile({str(tmp_path / "c")!r}, "u1")
        os.close(os.open({str(tmp_path / "d")!r}, os.O_RDONLY))
        pathlib.Path("/proc/self/stat").read_text()
        pathlib.Path(os.__file__).read_text()
        """
    )
    assert set(found["files"]) == {str(tmp_path / name) for name in "abcd"}
    assert depends.changed(found) == ""
    assert found["packages"]["numpy"] == depends.version("numpy") != "absent"
    (tmp_path / "c").write_bytes(b"1" * 256)
    assert depends.changed(found) == f"{tmp_path / 'c'} has changed"
    (tmp_path / "c").unlink()
    assert depends.changed(found) == f"{tmp_path / 'c'} is missing"


def test_what_changes_behind_the_files_look_is_noticed(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "w.bin"
    weights.write_bytes(b"0000")
    os.utime(weights, (1, 1))
    found = run(f"open({str(weights)!r}, 'rb').close()")
    other = tmp_path / "other"
    other.write_bytes(b"1111")
    os.utime(other, (1, 1))
    other.replace(weights)
    assert depends.changed(found) == f"{weights} has changed"
    weights = tmp_path / "w.bin"
    weights.write_bytes(b"0000")
    before = depends.looks(weights)
    weights.write_bytes(b"00000")
    assert depends.changed({"files": {str(weights): depends.file(weights, before)}}) != ""


def test_another_checkpoint_in_a_listed_folder_is_noticed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "1.pt").write_text("1")
    found = run(f"import glob; glob.glob({str(folder)!r} + '/*.pt')")
    assert depends.changed(found) == ""
    (folder / ".hidden").write_text("1")
    assert depends.changed(found) == ""
    (folder / "2.pt").write_text("2")
    assert depends.changed(found) == f"the folder {folder} has other files"


def test_variables_that_the_user_names_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_STEP", "secret")
    found = Watch(tmp_path / "net.py").found(variables=["MY_STEP"])
    assert set(found["variables"]) == {"MY_STEP"}
    assert "secret" not in str(found)
    assert depends.changed(found) == ""
    monkeypatch.setenv("MY_STEP", "other")
    assert "MY_STEP has changed" in depends.changed(found)
    monkeypatch.delenv("MY_STEP")
    assert "MY_STEP has changed" in depends.changed(found)


def test_modules_from_anywhere_and_versions_of_packages_count(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "slipway_shared_part.py").write_text("WIDTH = 4\n")
    found = run(f"import sys; sys.path.insert(0, {str(shared)!r}); import slipway_shared_part")
    assert str(shared / "slipway_shared_part.py") in found["files"]
    assert "slipway_shared_part" not in sys.modules
    found = run("import numpy")
    monkeypatch.setattr(
        depends, "version", lambda name: "9.9" if name == "numpy" else depends.version.__wrapped__(name)
    )
    assert depends.changed(found).startswith("numpy is now 9.9, it was ")
